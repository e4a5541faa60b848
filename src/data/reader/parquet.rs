//! [`Parquet`]: rows of a parquet file through Polars, read in slices of its row groups.

use std::cell::Cell;
use std::fs::File;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::Once;

use minijinja::Value;
use polars::prelude::*;

use super::DataError;
use super::lines::cannot_read;
use super::rows::{Fields, Row, Wanted, object};

/// About how many bytes are in memory at once, uncompressed.
const SLICE: usize = 16 << 20;

pub struct Parquet {
    path: PathBuf,
    metadata: FileMetadataRef,
    /// Of the columns, and whether they are read.
    names: Vec<(String, bool)>,
    /// First row and number of rows of the slices that are not read yet, the next one last.
    slices: Vec<(usize, usize)>,
    /// The columns of the slice that is read.
    columns: Vec<std::vec::IntoIter<Value>>,
    /// Rows of it that are left.
    left: usize,
    row: usize,
}

impl Parquet {
    /// # Errors
    /// A file that cannot be read, or is no parquet file.
    pub fn open(path: &Path, wanted: &Wanted) -> Result<Self, DataError> {
        Self::in_slices(path, wanted, SLICE)
    }

    /// In slices of about so many bytes, uncompressed.
    fn in_slices(path: &Path, wanted: &Wanted, slice: usize) -> Result<Self, DataError> {
        let (metadata, names) = guarded(path, || {
            let mut reader = ParquetReader::new(open(path)?);
            let names: Vec<String> = reader.schema()?.iter_names().map(|name| name.to_string()).collect();
            Ok((reader.get_metadata()?.clone(), names))
        })?;
        let mut slices = Vec::new();
        let mut first = 0;
        for group in &metadata.row_groups {
            let (rows, bytes) = (group.num_rows(), group.total_byte_size().max(1));
            let most = (rows as u128 * slice as u128 / bytes as u128).clamp(1, rows.max(1) as u128) as usize;
            slices.extend((0..rows).step_by(most).map(|from| (first + from, most.min(rows - from))));
            first += rows;
        }
        slices.reverse();
        let names = names.into_iter().map(|name| (wanted.has(&name), name)).map(|(read, name)| (name, read));
        Ok(Self {
            path: path.to_path_buf(),
            metadata,
            names: names.collect(),
            slices,
            columns: Vec::new(),
            left: 0,
            row: 0,
        })
    }

    /// The names of the columns.
    pub fn names(&self) -> Vec<String> {
        self.names.iter().map(|(name, _)| name.clone()).collect()
    }

    fn read(&mut self, slice: (usize, usize)) -> Result<(), DataError> {
        let read: Vec<String> =
            self.names.iter().filter(|(_, read)| *read).map(|(name, _)| name.clone()).collect();
        let columns: Vec<Vec<Value>> = guarded(&self.path, || {
            if read.is_empty() {
                return Ok(Vec::new());
            }
            let mut reader = ParquetReader::new(open(&self.path)?);
            reader.set_metadata(self.metadata.clone());
            let frame = reader
                .with_columns(Some(read.clone()))
                .with_slice(Some(slice))
                .read_parallel(ParallelStrategy::None)
                .finish()?;
            read.iter().map(|name| values(frame.column(name)?.as_materialized_series())).collect()
        })?;
        if columns.iter().any(|column| column.len() != slice.1) {
            let path = self.path.display();
            return Err(DataError::new(format!("{path} has fewer rows than it says: the file is damaged")));
        }
        self.columns = columns.into_iter().map(Vec::into_iter).collect();
        self.left = slice.1;
        Ok(())
    }
}

impl Iterator for Parquet {
    type Item = Result<Row, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.left == 0 {
            let slice = self.slices.pop()?;
            if let Err(e) = self.read(slice) {
                self.slices.clear();
                return Some(Err(e));
            }
        }
        self.left -= 1;
        self.row += 1;
        let mut read = self.columns.iter_mut();
        let column = |(name, is_read): &(String, bool)| {
            let value = if *is_read { read.next().and_then(Iterator::next) } else { None };
            (name.clone(), value.unwrap_or(Value::UNDEFINED))
        };
        let fields = Fields::new(self.names.iter().map(column).collect());
        Some(Ok(Row { number: self.row, columns: Ok(fields) }))
    }
}

fn open(path: &Path) -> PolarsResult<File> {
    File::open(path).map_err(|e| PolarsError::IO { error: e.into(), msg: None })
}

/// The values of a column. A key of a struct that has no value is not there: files have the keys of all rows in each.
fn values(series: &Series) -> PolarsResult<Vec<Value>> {
    let none = || Value::from(());
    Ok(match series.dtype() {
        DataType::String => series.str()?.iter().map(|text| text.map_or_else(none, Value::from)).collect(),
        DataType::Categorical(..) | DataType::Enum(..) => values(&series.cast(&DataType::String)?)?,
        DataType::Boolean => {
            series.bool()?.iter().map(|value| value.map_or_else(none, Value::from)).collect()
        }
        DataType::UInt64 => series.u64()?.iter().map(|value| value.map_or_else(none, Value::from)).collect(),
        dtype if dtype.is_integer() => {
            let whole = series.cast(&DataType::Int64)?;
            whole.i64()?.iter().map(|value| value.map_or_else(none, Value::from)).collect()
        }
        dtype if dtype.is_float() => {
            let real = series.cast(&DataType::Float64)?;
            real.f64()?.iter().map(|value| value.map_or_else(none, Value::from)).collect()
        }
        DataType::Null => vec![none(); series.len()],
        DataType::List(_) => {
            let lists = series.list()?;
            let list =
                |row| lists.get_as_series(row).map_or_else(|| Ok(none()), |list| Ok(values(&list)?.into()));
            (0..lists.len()).map(list).collect::<PolarsResult<_>>()?
        }
        DataType::Struct(_) => {
            let fields = series.struct_()?.fields_as_series();
            let names: Vec<String> = fields.iter().map(|field| field.name().to_string()).collect();
            let mut columns = fields
                .iter()
                .map(|field| Ok(values(field)?.into_iter()))
                .collect::<PolarsResult<Vec<_>>>()?;
            let missing = series.is_null();
            let row = |missing: Option<bool>| {
                let row: Vec<_> =
                    columns.iter_mut().map(|column| column.next().unwrap_or_default()).collect();
                match missing {
                    Some(true) => none(),
                    _ => {
                        object(names.iter().cloned().zip(row).filter(|(_, value)| !value.is_none()).collect())
                    }
                }
            };
            missing.iter().map(row).collect()
        }
        other => {
            polars_bail!(ComputeError: "the column `{}` has the type {}, which is not read", series.name(), other)
        }
    })
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// What Polars makes of a file. It panics at some damaged ones.
fn guarded<T>(path: &Path, read: impl FnOnce() -> PolarsResult<T>) -> Result<T, DataError> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                before(info);
            }
        }));
    });
    QUIET.set(true);
    let result = panic::catch_unwind(AssertUnwindSafe(read));
    QUIET.set(false);
    let path_shown = path.display();
    match result {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(PolarsError::IO { error, .. })) => Err(cannot_read(path, &error)),
        Ok(Err(e)) => Err(DataError::new(format!("cannot read {path_shown} as parquet: {e}"))),
        Err(_) => Err(DataError::new(format!(
            "cannot read {path_shown} as parquet: it is damaged or cut; make or fetch it again"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_all_rows_in_order() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/data");
        for (name, column) in
            [("text.parquet", "text"), ("messages.parquet", "messages"), ("input_ids.parquet", "labels")]
        {
            let wanted = Wanted::these([column]);
            let read = |slice| {
                let parquet = Parquet::in_slices(&path.join(name), &wanted, slice).unwrap();
                let slices = parquet.slices.len();
                let rows = parquet.map(|row| {
                    let Row { number, columns } = row.unwrap();
                    (number, serde_json::to_string(columns.unwrap().get(column).unwrap()).unwrap())
                });
                (slices, rows.collect::<Vec<_>>())
            };
            let ((whole, expected), (rows, single), (_, some)) = (read(SLICE), read(1), read(200));
            assert!(whole < rows && rows == 7, "{name}: {whole} and {rows} slices");
            assert_eq!(expected.len(), 7);
            assert_eq!((&single, &some), (&expected, &expected), "{name}");
        }
    }
}
