//! Cells of several ranks in the report: how they scale, and each of their ranks.

use super::columns::{RANKS, SCALING, Scaling};
use super::document::{Element, Table};
use super::line::Line;
use super::table::Comparison;

/// Nothing for cells of one process.
pub fn elements(comparison: &Comparison) -> Vec<Element> {
    Element::section("Ranks", [scaling(comparison), ranks(comparison)])
}

/// Cells of several ranks that ran to their end.
fn of_ranks<'c>(comparison: &'c Comparison) -> impl Iterator<Item = (usize, &'c Line<'c>)> {
    let several = |line: &Line| line.measured().is_some_and(|measured| !measured.ranks.is_empty());
    comparison.lines.iter().enumerate().filter(move |(_, line)| several(line))
}

fn scaling(comparison: &Comparison) -> Option<Table> {
    let rows = of_ranks(comparison).filter_map(|(i, line)| {
        let measured = line.typical()?;
        let one = line.baseline.filter(|&baseline| comparison.lines[baseline].cell.parallel.is_alone());
        let tokens_per_second = |line: usize| comparison.frame.get("tokens_per_second", line);
        let scaling = Scaling {
            ranks: &measured.ranks,
            tokens_per_second: tokens_per_second(i)?,
            of_one: one.and_then(tokens_per_second),
            sent: line.derived().and_then(|derived| derived.sent),
        };
        Some((i, Vec::new(), scaling))
    });
    let caption = "Tokens a second of all ranks together; scaling efficiency is their ratio to one process's over the \
                   number of ranks. Ranks on one CPU share its cores, so their efficiency is at most 1 over their \
                   number where one process uses all cores. Sent and exposed are those of the rank with the most, in a \
                   step; by the formula: the bytes of the sums over ranks that it sends, without small messages.";
    comparison.table_of(caption, SCALING, rows)
}

fn ranks(comparison: &Comparison) -> Option<Table> {
    let rows = of_ranks(comparison).flat_map(|(i, line)| {
        let ranks = line.typical().map_or(&[][..], |measured| &measured.ranks);
        ranks.iter().map(move |rank| (i, vec![("rank", rank.rank.to_string())], rank.clone()))
    });
    let caption = "Each rank, as means over the measured steps. Exchange: time in which the rank exchanged data with others or \
                   waited for them; exposed: the part of it that computation did not hide.";
    comparison.table_of(caption, RANKS, rows)
}
