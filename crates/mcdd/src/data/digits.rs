//! An embedded data set, for demonstrations and tests.

use std::io::Read;

use super::column::Column;
use super::labels::Labels;
use super::table::{LabelColumn, Table};

/// 1,797 handwritten digits of 8x8 pixels (0 to 16), columns `p00` to `p63`, classes `0` to `9`.
///
/// It is the test part of the UCI data set "Optical Recognition of Handwritten Digits" by E. Alpaydin and
/// C. Kaynak, licensed CC BY 4.0.
pub fn digits() -> Table {
    let packed: &[u8] = include_bytes!("digits/digits.csv.gz");
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed).read_to_string(&mut text).expect("the embedded file is whole");
    let mut columns = vec![Vec::new(); 64];
    let mut codes = Vec::new();
    for line in text.lines() {
        let mut cells = line.split(',').map(|cell| cell.parse::<f64>().unwrap_or(f64::NAN));
        for (column, value) in columns.iter_mut().zip(&mut cells) {
            column.push(value);
        }
        codes.push(cells.next().map_or(0, |label| label as u32));
    }
    let labels = Labels { codes, names: (0..10).map(|digit| digit.to_string()).collect() };
    let names = (0..64).map(|pixel| format!("p{pixel:02}")).collect();
    let columns = columns.into_iter().map(Column::Number).collect();
    let label = LabelColumn { name: "label".into(), position: Some(64) };
    Table::assemble(names, columns, Some(labels), Some(label))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_digits_are_whole() {
        let table = digits();
        assert_eq!((table.rows(), table.columns.len()), (1797, 64));
        assert_eq!(table.class_sizes(), [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
        for column in &table.columns {
            let Column::Number(values) = column else { panic!() };
            assert!(values.iter().all(|v| (0.0..=16.0).contains(v)));
        }
        assert_eq!((table.label_name(0), table.label(1)), (Some("0"), Some(1)));
    }
}
