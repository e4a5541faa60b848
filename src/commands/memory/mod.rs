//! `runner memory`: where the memory of each cell goes, by the account of its estimate, next to what was measured.

mod lines;

use std::collections::HashMap;
use std::path::PathBuf;

use clap::Args;
use miette::Result;
use strum::VariantArray;

use self::lines::{Class, Line, Unit, lines};
use crate::commands::CheckArgs;
use crate::commands::plan::short;
use crate::common::text::{grouped, table};
use crate::device::Target;
use crate::estimate::Account;
use crate::keys::Settings;
use crate::measure::MemoryUse;
use crate::recipe::{Cell, Recipe, keys};
use crate::row::Row;
use crate::run::{Options, Store, memory_limit};

#[derive(Debug, Args)]
pub struct MemoryArgs {
    /// The recipe (a TOML file)
    pub recipe: PathBuf,
    #[command(flatten)]
    pub checked: CheckArgs,
    /// Only the cell with this number in `runner plan`
    #[arg(long, value_name = "K")]
    pub cell: Option<usize>,
    /// Folder with the results to compare with
    #[arg(long, value_name = "FOLDER", default_value = "results")]
    pub results: PathBuf,
}

/// The accounts of the chosen cells as text.
///
/// # Errors
/// When there is no such cell.
pub fn memory(args: &MemoryArgs, recipe: &Recipe, target: &Target) -> Result<String> {
    let options = Options { cells: args.cell.into_iter().collect(), ..Options::default() };
    let chosen = options.choose(recipe.cells.len())?;
    let measured = Store::rows_of_all_devices(&args.results, recipe);
    let settings: Vec<Settings> = recipe.cells.iter().map(Cell::settings).collect();
    let known_by = recipe.apart_from_device();
    let identity =
        |settings: Settings| serde_json::to_string(&known_by(settings)).expect("settings are plain data");
    let mut by_cell: HashMap<String, Vec<&Row>> = HashMap::new();
    for row in &measured {
        by_cell.entry(identity(row.settings())).or_default().push(row);
    }
    let swept = &recipe.telling;
    let accounts: Vec<CellAccount> = chosen
        .into_iter()
        .map(|i| {
            let cell = &recipe.cells[i];
            let limit = memory_limit(cell, &target.info(cell.device_id()));
            let cell = cell.within(limit);
            let of_cell = by_cell.get(&identity(settings[i].clone()));
            let mut of_cell =
                of_cell.into_iter().flatten().filter(|row| row.is_on_cpu() == (cell.device == "cpu"));
            let memory =
                |row: &&Row| Some((row.measurement.as_ref()?.memory, row.environment.device.name.clone()));
            let measured = of_cell.find_map(memory);
            let values = swept.iter().filter_map(|key| {
                Some(format!("{} = {}", short(key, swept), keys::shown(key, settings[i].get(key)?)))
            });
            let values = values.collect::<Vec<_>>().join(", ");
            let colon = if values.is_empty() { "" } else { ": " };
            let account = cell.account();
            CellAccount {
                name: format!("cell {}{colon}{values}", i + 1),
                lines: lines(&cell, &account),
                account,
                measured,
                cell,
            }
        })
        .collect();
    let mut text = format!("{}\n", recipe.title);
    accounts.iter().for_each(|account| text += &format!("\n{}", account.text()));
    Ok(text)
}

struct CellAccount {
    name: String,
    cell: Cell,
    account: Account,
    lines: Vec<Line>,
    /// With the name of the device that measured it.
    measured: Option<(MemoryUse, String)>,
}

impl CellAccount {
    fn of(&self, class: Class) -> u64 {
        self.lines.iter().filter(|line| line.class == class).map(|line| line.bytes).sum()
    }

    fn on_device(&self) -> u64 {
        Class::VARIANTS.iter().filter(|class| class.is_on_device()).map(|class| self.of(*class)).sum()
    }

    fn text(&self) -> String {
        format!("{}\n{}\n{}.\n", self.name, self.table(), Unit::of(&self.cell).legend())
    }

    fn table(&self) -> String {
        let mut rows = Vec::new();
        let gb = |bytes: u64| format!("{:.3}", bytes as f64 * 1e-9);
        for (i, line) in self.lines.iter().enumerate() {
            let first = i == 0 || self.lines[i - 1].class != line.class;
            let class = if first { line.class.into_str() } else { "" };
            let (what, formula) = (line.what.clone(), line.formula.clone());
            rows.push(vec![class.into(), what, formula, grouped(line.bytes), gb(line.bytes), String::new()]);
        }
        for (what, bytes, measured) in self.sums() {
            let measured = measured.map_or(String::new(), gb);
            rows.push(vec!["sum".into(), what.into(), String::new(), grouped(bytes), gb(bytes), measured]);
        }
        let device = self.measured.as_ref().map_or(String::new(), |(_, device)| format!(", {device}"));
        let measured = format!("measured GB{device}");
        table(&["", "what", "formula", "bytes", "GB", &measured], rows, 3)
    }

    /// A name, the estimated bytes and the measured ones.
    fn sums(&self) -> Vec<(&'static str, u64, Option<u64>)> {
        let measured = self.measured.as_ref().map(|(memory, _)| memory);
        let of = |value: fn(&MemoryUse) -> Option<u64>| measured.and_then(value);
        let mut sums = vec![
            ("tensors at the step's peak", self.account.estimate().total(), of(|m| Some(m.live_peak))),
            (
                "tensors between forward and backward",
                self.account.after_forward(),
                of(|m| Some(m.after_forward)),
            ),
        ];
        if self.of(Class::Context) > 0 {
            sums.push((
                "device, without what pools hold in reserve",
                self.on_device(),
                of(|m| m.driver_peak),
            ));
        }
        let (locked, host) = (self.of(Class::PageLocked), self.of(Class::Host));
        // The CPU has no memory to lock: there all of it is the host's.
        match self.of(Class::Context) > 0 {
            true => sums.extend([("page-locked", locked, of(|m| m.pinned)), ("host", host, of(|m| m.host))]),
            false => sums.push(("host", locked + host, of(|m| m.host))),
        }
        sums.push(("files on disk", self.of(Class::Disk), of(|m| m.disk)));
        sums.retain(|(_, bytes, measured)| *bytes > 0 || measured.is_some());
        sums
    }
}
