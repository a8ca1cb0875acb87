// Sorting, and methods that are hidden when there are many.

const main = document.querySelector('main'), order = document.getElementById('order');
for (const table of document.querySelectorAll('table')) {
  if (table.tBodies[0].rows.length > 1) sortable(table, order);
}

const places = [...document.querySelectorAll('.fold')].map(place => {
  const text = document.createElement('span'), button = document.createElement('button');
  button.type = 'button';
  place.append(text, button);
  return { text, button };
});
const { first, all, why } = main.dataset;
function fold(folded) {
  main.classList.toggle('folded', folded);
  for (const { text, button } of places) {
    text.textContent = folded ? `${first} of ${all} methods are shown: ${why}.` : `All ${all} methods are shown.`;
    button.textContent = folded ? `Show all ${all} methods` : `Show ${first} methods`;
    button.setAttribute('aria-expanded', String(!folded));
  }
}
for (const { button } of places) {
  button.addEventListener('click', () => {
    // What is above grows or shrinks as well; the button stays where it is.
    const { top } = button.getBoundingClientRect();
    fold(!main.classList.contains('folded'));
    window.scrollBy({ top: button.getBoundingClientRect().top - top, behavior: 'instant' });
  });
}
if (places.length) fold(true);
