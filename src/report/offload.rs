//! What the report says of offload: what crossed the bus in each phase and how much of it behind
//! computation, each cell against the floor of its copies, where a strategy does not help, and what
//! updates on the host took.

use std::collections::BTreeSet;

use super::content::{naming, or_dash, strings};
use super::document::{Block, Table};
use super::table::{Comparison, Line, Quantity};
use crate::measure::Crossing;
use crate::optim::OptimizerConfig;
use crate::residence::Strategy;
use crate::words::Bytes;
use crate::words::text::{and, percent, ratio, seconds, significant};

/// A smaller gain than this is none.
const NO_GAIN: f64 = 0.02;

/// Nothing for recipes whose blocks stay where they are.
pub fn blocks(comparison: &Comparison) -> Vec<Block> {
    let moved: Vec<&Line> = comparison.lines.iter().filter(|line| line.cell.offload.moves()).collect();
    let mut out = Vec::new();
    if moved.iter().any(|line| !crossings(line).is_empty()) {
        out.push(crossed(comparison, &moved));
    }
    if moved.iter().any(|line| floor(line).is_some()) {
        out.push(against_floor(comparison, &moved));
    }
    out.extend(without_gain(comparison).map(|text| Block::Paragraph { text }));
    if !out.is_empty() {
        out.insert(0, Block::Heading { text: "What crossed the bus".into() });
    }
    if comparison.lines.iter().any(|line| line.measured().is_some_and(|m| m.host_update.is_some())) {
        out.extend([Block::Heading { text: "Updates on the host".into() }, host_updates(comparison)]);
    }
    out
}

/// A row a cell whose optimizer is on the host.
fn host_updates(comparison: &Comparison) -> Block {
    let (mut header, names) = naming(comparison);
    let text_columns = (0..header.len()).collect();
    header.extend(strings(&["step", "update", "after backward", "hidden", "ceiling", "of ceiling"]));
    header.extend(strings(&["page-locked", "ordinary memory"]));
    let row = |line: &Line| {
        let m = line.measured()?;
        let (update, (hidden, ceiling)) = (m.host_update.as_ref()?, m.hidden_update()?);
        let bytes = |bytes: Option<u64>| or_dash(bytes.map(|bytes| Bytes(bytes).to_string()));
        let mut row = names(line);
        row.extend([
            seconds(m.step.median),
            seconds(update.median),
            or_dash(m.optimizer.as_ref().map(|samples| seconds(samples.median))),
            percent(hidden),
            percent(ceiling),
            percent(hidden / ceiling),
            bytes(m.memory.pinned),
            bytes(m.memory.host),
        ]);
        Some(row)
    };
    Block::Table(Table {
        caption: "AdamW on the host: the time in which it worked, what of a step was left when backward had ended, \
                  and the share of the update that backward hid beside the most that it can, min(1, backward / \
                  update). Memory of the host: page-locked for copies, and ordinary for master weights and \
                  moments."
            .into(),
        header,
        rows: comparison.lines.iter().filter_map(row).collect(),
        text_columns,
    })
}

fn crossings<'a>(line: &'a Line) -> &'a [Crossing] {
    line.measured().map_or(&[], |m| &m.crossings)
}

/// A row a cell, phase and direction.
fn crossed(comparison: &Comparison, moved: &[&Line]) -> Block {
    let (mut header, names) = naming(comparison);
    header.extend(strings(&["phase", "copies"]));
    let text_columns = (0..header.len()).collect();
    header.extend(strings(&["bytes", "GB/s", "copy time", "compute", "hidden", "ceiling", "of ceiling"]));
    let row = |line: &&Line, c: &Crossing| {
        let mut row = names(line);
        row.extend([
            c.phase.name().to_string(),
            format!("{} {}", c.copies, c.direction.name()),
            Bytes(c.bytes).to_string(),
            significant(c.rate() / 1e9),
            seconds(c.copy_seconds),
            seconds(c.compute_seconds),
            percent(c.hidden_share()),
            percent(c.ceiling()),
            or_dash((c.ceiling() > 0.0).then(|| percent(c.hidden_share() / c.ceiling()))),
        ]);
        row
    };
    Block::Table(Table {
        caption: "One recorded step of each cell, after the measured ones, by the device's own clock. GB/s: bytes \
                  over the time in which copies in this direction ran; compute: the time of kernels in the turns \
                  of blocks, or in the optimizer; hidden: the share of copy time during which a kernel ran too; \
                  ceiling: the most that can be, min((n-1)/n, compute/copy time) for n copies."
            .into(),
        header,
        rows: moved.iter().flat_map(|line| crossings(line).iter().map(move |c| (line, c))).map(|(l, c)| row(l, c)).collect(),
        text_columns,
    })
}

/// Seconds that the fewest bytes take at the measured rates, in forward and in backward.
fn floor(line: &Line) -> Option<[f64; 2]> {
    let (cell, ceilings) = (line.cell, line.row?.environment.ceilings);
    let shape = cell.model.decoder()?;
    let updates = !matches!(cell.train.optimizer, OptimizerConfig::None(_));
    let copies = cell.offload.fewest_copies(shape.layers, cell.train.accumulation_steps, updates);
    let bytes = shape.block_bytes(cell) as f64;
    let time = |copies: usize, rate: Option<f64>| Some(copies as f64 * bytes / rate?);
    let most = copies.backward_to_device.max(copies.backward_to_host);
    Some([time(copies.forward_to_device, ceilings.host_to_device)?, time(most, ceilings.both_ways)?])
}

/// A row a cell: the floor of its copies, and its time.
fn against_floor(comparison: &Comparison, moved: &[&Line]) -> Block {
    let (mut header, names) = naming(comparison);
    let text_columns = (0..header.len()).collect();
    header.extend(strings(&[
        "floor forward",
        "forward",
        "×",
        "floor backward",
        "backward",
        "×",
        "both ×",
        "page-locked",
    ]));
    let row = |line: &&Line| {
        let (floor, m) = (floor(line), line.measured());
        let times = m.map(|m| [m.forward.median, m.backward.median]);
        let mut row = names(line);
        for i in 0..2 {
            row.push(or_dash(floor.map(|floor| seconds(floor[i]))));
            row.push(or_dash(times.map(|times| seconds(times[i]))));
            row.push(or_dash(floor.zip(times).map(|(floor, times)| ratio(times[i] / floor[i]))));
        }
        let both = floor.zip(times).map(|([a, b], [x, y])| ratio((x + y) / (a + b)));
        row.push(or_dash(both));
        row.push(or_dash(m.and_then(|m| m.memory.pinned).map(|bytes| Bytes(bytes).to_string())));
        row
    };
    Block::Table(Table {
        caption: "Times against the floor of the copies: the fewest bytes that any order with these slots must \
                  move, over the rate measured with page-locked memory, in backward both ways at once. A cell \
                  whose computation takes longer than its copies stays above it. Page-locked: the most host memory \
                  locked for the device; weights and gradients of the blocks need "
            .to_string()
            + &needed(moved),
        header,
        rows: moved.iter().map(row).collect(),
        text_columns,
    })
}

/// Bytes of the weights and gradients of all blocks, of each size once.
fn needed(moved: &[&Line]) -> String {
    let bytes = |line: &&Line| {
        let shape = line.cell.model.decoder()?;
        Some(2 * shape.layers as u64 * shape.block_bytes(line.cell))
    };
    let sizes: BTreeSet<u64> = moved.iter().filter_map(bytes).collect();
    let sizes: Vec<String> = sizes.into_iter().map(|bytes| Bytes(bytes).to_string()).collect();
    format!("{}.", and(&sizes))
}

/// A sentence for each cell that is no faster than `naive` with the same other settings.
fn without_gain(comparison: &Comparison) -> impl Iterator<Item = String> {
    let step = |line: &Line| line.measured().map(|m| Quantity::Step.of(m));
    let others = |line: &Line| {
        let mut settings = line.settings.clone();
        settings.retain(|key, _| !key.starts_with("offload."));
        settings
    };
    let beyond = |line: &Line| !matches!(line.cell.offload.strategy, Strategy::None | Strategy::Naive);
    let sentence = move |line: &Line| {
        let naive = comparison.lines.iter().find(|other| {
            other.cell.offload.strategy == Strategy::Naive && others(other) == others(line)
        })?;
        let share = step(line)? / step(naive)?;
        (share > 1.0 - NO_GAIN).then(|| {
            format!(
                "Without gain: {} takes {} times as long as naive offload with the same settings.",
                comparison.name(line),
                ratio(share).trim_end_matches('x')
            )
        })
    };
    comparison.lines.iter().filter(move |line| beyond(line)).filter_map(sentence)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{environment, language_recipe, ok_row};
    use super::*;
    use crate::device::Ceilings;
    use crate::measure::Direction;
    use crate::measure::{Phase, Samples};
    use crate::residence::Memory;
    use crate::row::Row;

    /// Naive, overlap and function at one shape; overlap takes half of the time, function as long.
    #[test]
    fn tables_by_hand() {
        let recipe = language_recipe(
            "[grid]\n\"offload.strategy\" = [\"naive\", \"overlap\", \"function\"]\n\
             [report]\nbaseline = { \"offload.strategy\" = \"naive\" }\n",
        );
        let rates = Ceilings { host_to_device: Some(1e9), both_ways: Some(0.5e9), ..Ceilings::default() };
        let row = |(cell, time): (_, f64)| {
            let mut row: Row = ok_row(cell, time, time, 1 << 20);
            row.environment.ceilings = rates;
            assert_eq!(row.environment.date, environment().date);
            let crossing = |phase, direction, copies, hidden_seconds| Crossing {
                phase,
                direction,
                copies,
                bytes: 30_000_000,
                copy_seconds: 0.03,
                hidden_seconds,
                compute_seconds: 0.012,
            };
            row.measurement.as_mut().expect("a measured row").crossings = vec![
                crossing(Phase::Forward, Direction::ToDevice, 2, 0.0),
                crossing(Phase::Backward, Direction::ToHost, 2, 0.0108),
            ];
            row
        };
        let rows: Vec<Row> = recipe.cells.iter().zip([0.002, 0.001, 0.002]).map(row).collect();
        let comparison = Comparison::new(&recipe, &rows);
        let blocks = blocks(&comparison);
        let [Block::Heading { .. }, Block::Table(crossed), Block::Table(floor), Block::Paragraph { text }] =
            blocks.as_slice()
        else {
            panic!("{} blocks", blocks.len())
        };
        assert_eq!(
            crossed.rows[0],
            [
                "naive",
                "forward",
                "2 to the device",
                "28.6 MiB",
                "1.00",
                "30.0 ms",
                "12.0 ms",
                "0 %",
                "40 %",
                "0 %"
            ]
        );
        assert_eq!(crossed.rows[1][6..], ["12.0 ms", "36 %", "40 %", "90 %"]);
        // 12 · 64² weights of 4 bytes a block: 197 kB. After an update both blocks are loaded in
        // forward, 0.393 ms at 1 GB/s; backward sends two, 0.786 ms at 0.5 GB/s.
        assert_eq!(
            floor.rows[0],
            ["naive", "393 µs", "2.00 ms", "5.09x", "786 µs", "2.00 ms", "2.54x", "3.39x", "–"]
        );
        assert_eq!(
            text,
            "Without gain: function takes 1.00 times as long as naive offload with the same settings."
        );
    }

    /// Of an update of 4 ms, 2.5 ms are left after 2 ms of backward: 38 % are hidden, of at most 50 %.
    #[test]
    fn updates_on_the_host_by_hand() {
        let recipe = language_recipe("[grid]\n\"offload.optimizer\" = [\"host\", \"device\"]\n");
        let row = |cell| {
            let mut row = ok_row(cell, 0.001, 0.002, 1 << 20);
            let m = row.measurement.as_mut().expect("a measured row");
            if cell.offload.optimizer == Memory::Host {
                m.host_update = Some(Samples::new(vec![0.004]));
                m.optimizer = Some(Samples::new(vec![0.0025]));
                (m.memory.pinned, m.memory.host) = (Some(2 << 20), Some(12 << 20));
            }
            row
        };
        let rows: Vec<Row> = recipe.cells.iter().map(row).collect();
        let blocks = blocks(&Comparison::new(&recipe, &rows));
        let [Block::Heading { .. }, Block::Table(table)] = blocks.as_slice() else {
            panic!("{}", blocks.len())
        };
        let [only] = table.rows.as_slice() else { panic!("{:?}", table.rows) };
        assert_eq!(only[2..], ["4.00 ms", "2.50 ms", "38 %", "50 %", "75 %", "2.00 MiB", "12.0 MiB"]);
    }

    #[test]
    fn resident_blocks_have_no_section() {
        let recipe = language_recipe("");
        let rows: Vec<Row> = recipe.cells.iter().map(|cell| ok_row(cell, 0.1, 0.1, 1)).collect();
        assert!(blocks(&Comparison::new(&recipe, &rows)).is_empty());
    }
}
