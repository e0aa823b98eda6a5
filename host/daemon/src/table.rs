//! Listings for people: columns of texts, as wide as they need to be.

use std::fmt;

use crate::printable;

/// Rows below a heading; all have as many cells.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(heading: &[&str]) -> Self {
        let heading = heading.iter().map(|&cell| cell.to_owned()).collect();
        Self {
            rows: vec![heading],
        }
    }

    pub(crate) fn row(&mut self, mut cells: Vec<String>) {
        for cell in &mut cells {
            *cell = printable::one_line(cell).into_owned();
        }
        self.rows.push(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.first().map_or(0, Vec::len);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (number, row) in self.rows.iter().enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            for (column, cell) in row.iter().enumerate() {
                // No spaces at the end of a line.
                if column + 1 == columns {
                    f.write_str(cell)?;
                } else {
                    write!(f, "{cell:<width$}  ", width = widths[column])?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["GROUP", "LAG", "WHY"]);
        table.row(vec!["shop-orders".into(), "7".into(), "paused".into()]);
        let text = "GROUP        LAG  WHY\nshop-orders  7    paused";
        assert_eq!(table.to_string(), text);
    }

    #[test]
    fn a_cell_cannot_make_a_row_or_move_the_cursor() {
        let mut table = Table::new(&["GROUP", "WHY"]);
        table.row(vec!["a\n\u{1b}[2Jshop".into(), "x".into()]);
        let text = "GROUP             WHY\na\\n\\u{1b}[2Jshop  x";
        assert_eq!(table.to_string(), text);
    }
}
