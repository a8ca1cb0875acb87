// Tables that are sorted by a column.

const compare = new Intl.Collator('en', { numeric: true }).compare;
/** The number at the start of a cell; null if there is none. */
function cellNumber(cell) {
  const found = cell.textContent.replaceAll(',', '').replaceAll('−', '-').match(/^-?\d+(\.\d+)?(e-?\d+)?/);
  return found && Number(found[0]);
}

/**
 * Puts a button into each header cell. It sorts the rows of the body by its column, then in the other direction, then as they
 * were. Numbers begin with the highest, names with the first. Cells without a number come last. `status` announces the order.
 */
function sortable(table, status) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0], original = [...body.rows];
  const directions = i => i === 0 ? ['ascending', 'descending'] : ['descending', 'ascending'];
  function order(i, direction) {
    const sign = direction === 'ascending' ? 1 : -1;
    if (i === 0) return [...original].sort((a, b) => sign * compare(a.cells[0].textContent, b.cells[0].textContent));
    return original.map(row => [cellNumber(row.cells[i]), row]).sort(([a], [b]) =>
      a === null || b === null ? (a === null) - (b === null) : sign * (a - b)).map(([, row]) => row);
  }
  heads.forEach((head, i) => {
    const button = document.createElement('button');
    const name = head.textContent;
    button.type = 'button';
    if (head.title) button.title = head.title;
    button.append(...head.childNodes);
    head.append(button);
    head.setAttribute('aria-sort', 'none');
    button.addEventListener('click', () => {
      const now = head.getAttribute('aria-sort'), [first, second] = directions(i);
      const next = now === 'none' ? first : now === first ? second : 'none';
      heads.forEach(h => h.setAttribute('aria-sort', 'none'));
      head.setAttribute('aria-sort', next);
      body.append(...(next === 'none' ? original : order(i, next)));
      status.textContent = next === 'none' ? 'Original order.' : `Sorted by ${name}, ${next}.`;
    });
  });
}
