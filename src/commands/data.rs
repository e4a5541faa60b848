//! `runner data`: what the cells of a recipe train on, as their models read it, without training.

use std::fs;
use std::io::{IsTerminal, stdout};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use itertools::Itertools;
use miette::{IntoDiagnostic, Result, miette};

use super::CheckArgs;
use crate::common::Bytes;
use crate::common::text::{self, on_terminal, percent, rate};
use crate::data::record::Record;
use crate::data::samples::{SampleUnit, Samples};
use crate::data::statistics::{pieces, texts};
use crate::data::{Corpus, Data, Dataset, Part, Split, TextDataset, TokenizerSource};
use crate::measure::{Piece, QUANTILES, Texts};
use crate::recipe::{Cell, Recipe};

/// Around what is learned, which a terminal shows in green too.
const LEARNED: [&str; 2] = ["⟦", "⟧"];
/// Between tokens.
const TOKEN: &str = "│";
const GREEN: [&str; 2] = ["\x1b[32m", "\x1b[0m"];
/// Of a histogram.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// `runner data`
#[derive(Debug, Args)]
pub struct DataArgs {
    /// The recipe (a TOML file)
    pub recipe: PathBuf,
    #[command(flatten)]
    pub checked: CheckArgs,
    /// Show so many of the first samples of each split
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub samples: usize,
}

/// The data of each cell of a recipe, each once.
///
/// # Errors
/// A recipe without language models, and data that cannot be read.
pub fn run(args: &DataArgs) -> Result<String> {
    let target = args.checked.target.clone().unwrap_or_default();
    let recipe = Recipe::load(&args.recipe, &args.checked.settings.set, &target)?;
    let numbered = recipe.cells.iter().enumerate().filter(|(_, cell)| cell.model.vocab_size().is_some());
    let mut groups: Vec<(String, &Cell, Vec<usize>)> = Vec::new();
    for (number, cell) in numbered {
        let own =
            format!("{:?} {:?} {} {:?}", cell.data, cell.task, cell.train.seq_len, cell.model.vocab_size());
        match groups.iter_mut().find(|(other, ..)| *other == own) {
            Some((.., numbers)) => numbers.push(number + 1),
            None => groups.push((own, cell, vec![number + 1])),
        }
    }
    if groups.is_empty() {
        return Err(miette!(help = "name a recipe of language models", "no cell of the recipe reads text"));
    }
    let several = groups.len() > 1;
    let shown = groups.into_iter().map(|(_, cell, numbers)| {
        let heading = if several { format!("cells {}\n", text::few(numbers, 8)) } else { String::new() };
        Ok(heading + &data_of(cell, args.samples)?)
    });
    Ok(shown.collect::<Result<Vec<String>>>()?.join("\n"))
}

fn data_of(cell: &Cell, samples: usize) -> Result<String> {
    let vocab = cell.model.vocab_size().expect("a language model");
    let data =
        Dataset::open(&cell.data, cell.task.as_ref(), u64::from(cell.seed), vocab).into_diagnostic()?;
    let Dataset::Text(text) = &data else {
        return Ok(format!("random tokens below {vocab}, in blocks of {}\n", cell.train.seq_len));
    };
    let mut out = described(cell, text);
    let parts = [(Part::Train, text.train_split), (Part::HeldOut, text.eval_split)];
    for (part, split) in parts.into_iter().take(if cell.eval.is_some() { 2 } else { 1 }) {
        out += &split_of(cell, &data, text, (part, split), samples)?;
    }
    Ok(out)
}

/// Where the data is from, and what makes tokens of it.
fn described(cell: &Cell, text: &TextDataset) -> String {
    let Data::Text { template, learn, tokenizer, .. } = &cell.data else { return String::new() };
    let tokenizer = match tokenizer {
        TokenizerSource::Train { .. } => "trained on the training split".to_string(),
        TokenizerSource::Path(path) => path.display().to_string(),
    };
    let template = template.as_deref().unwrap_or("the tokenizer's");
    let learn = format!("{learn:?}").to_lowercase();
    format!(
        "tokenizer  {} ({} tokens)\nchats      template: {}, learned: {learn}\n",
        on_terminal(&tokenizer),
        text::grouped(text.tokenizer.vocab_size()),
        on_terminal(template),
    )
}

fn split_of(
    cell: &Cell,
    data: &Dataset,
    text: &TextDataset,
    (part, split): (Part, Split),
    shown: usize,
) -> Result<String> {
    let (config, max_length) = (cell.data.sampler(), cell.train.seq_len);
    let began = Instant::now();
    let stream = || data.stream(&config, max_length, u64::from(cell.seed));
    let buffer = (part == Part::Train).then(stream).flatten().and_then(|mut stream| stream.next());
    let which = if buffer.is_some() { "the first buffer: " } else { "" };
    let samples = buffer.unwrap_or_else(|| data.samples(part, &config, max_length)).into_diagnostic()?;
    let seconds = began.elapsed().as_secs_f64();
    let numbers = texts(&samples, &text.tokenizer, max_length, cell.classes().is_some()).into_diagnostic()?;
    let mut out = format!("\n{}\n", split.into_str());
    out += &files(&text.corpus, split, config.samples);
    out += &format!(
        "  samples  {which}{}, {} tokens, {} of them learned; tokenised, or read from the cache, in {} ({} tokens/s)\n",
        text::grouped(numbers.samples),
        text::grouped(numbers.tokens),
        percent(numbers.learned),
        text::seconds(seconds),
        rate(numbers.tokens as f64 / seconds.max(1e-9)),
    );
    out += &lengths(&numbers);
    out += &left_out(&numbers, max_length);
    for index in 0..samples.len().min(shown) {
        out += &sample(cell, &samples, index, text)?;
    }
    Ok(out)
}

/// The files of a split, and what its records are.
fn files(corpus: &Corpus, split: Split, unit: SampleUnit) -> String {
    let kind = corpus.records(split, unit).ok().and_then(|mut records| records.next()?.ok());
    let kind = match kind {
        Some(Record::Text(_)) => "texts",
        Some(Record::Pair(_)) => "prompts with completions",
        Some(Record::Chat(_)) => "chats",
        Some(Record::Tokens(_)) => "tokens",
        None => "no records",
    };
    // Those of later splits are read too, for records that are in both.
    let own = corpus.named().iter().filter(|(named, _)| *named == split).map(|(_, path)| path.clone());
    let own: Vec<PathBuf> = own.collect();
    let files = if own.is_empty() { corpus.files(&[split]) } else { own };
    if files.is_empty() {
        return format!("  records  {kind}, made from the seed or by the task\n");
    }
    let bytes = files.iter().filter_map(|file| Some(fs::metadata(file).ok()?.len())).sum();
    let name =
        |file: &PathBuf| on_terminal(&file.file_name().map_or(file.as_path(), Path::new).to_string_lossy());
    format!("  records  {kind} of {} ({})\n", text::few(files.iter().map(name), 4), Bytes(bytes))
}

/// Quantiles and a histogram in one line.
fn lengths(numbers: &Texts) -> String {
    let most = numbers.histogram.iter().max().copied().unwrap_or(1).max(1);
    let bar = |count: &u64| match count {
        0 => ' ',
        count => BARS[((count * BARS.len() as u64).div_ceil(most) - 1) as usize],
    };
    let bars: String = numbers.histogram.iter().map(bar).collect();
    let quantiles = QUANTILES.iter().zip(&numbers.lengths).map(|(share, length)| match share {
        0.0 => format!("shortest {}", text::grouped(length)),
        1.0 => format!("longest {}", text::grouped(length)),
        share => format!("{} {}", percent(*share), text::grouped(length)),
    });
    format!("  lengths  {} tokens  ▕{bars}▏\n", quantiles.format(", "))
}

fn left_out(numbers: &Texts, max_length: usize) -> String {
    let counts = [
        (
            numbers.cut_samples,
            format!("cut to train.seq_len = {max_length}, by {} tokens", text::grouped(numbers.cut_tokens)),
        ),
        (numbers.broken, "broken and left out".into()),
        (numbers.duplicates, "left out, which another split has".into()),
        (numbers.nothing_to_learn, "left out with nothing to learn".into()),
    ];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    let counts = counts.map(|(count, what)| format!("{} {what}", text::grouped(count))).join("; ");
    if counts.is_empty() { "  left out nothing\n".into() } else { format!("  besides  {counts}\n") }
}

/// A sample as trained: its text, and its tokens one by one.
fn sample(cell: &Cell, samples: &Samples, index: usize, text: &TextDataset) -> Result<String> {
    let sample = samples.get(index).into_diagnostic()?;
    let pieces = pieces(&sample, &text.tokenizer, cell.classes().is_some());
    let count: usize = pieces.iter().map(|piece| piece.tokens.len()).sum();
    let learned: usize = pieces.iter().filter(|piece| piece.learned).map(|piece| piece.tokens.len()).sum();
    let more = (sample.tokens.len() + usize::from(sample.last_label.is_some())).saturating_sub(count);
    let more = if more > 0 { format!(", and {more} more that are not shown") } else { String::new() };
    let colours = stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let shown = |piece: &Piece| {
        let tokens = piece.tokens.iter().map(|token| on_terminal(token).replace('\n', "\\n")).join(TOKEN);
        (marked(&on_terminal(&piece.text), piece.learned, colours), marked(&tokens, piece.learned, colours))
    };
    let (texts, tokens): (Vec<String>, Vec<String>) = pieces.iter().map(shown).unzip();
    Ok(format!(
        "  sample {}: {}, {learned} of them learned{more}\n{}\n  tokens:\n{}\n",
        index + 1,
        text::counted(count, "token"),
        texts.concat(),
        tokens.join(TOKEN),
    ))
}

/// A text within the marks of what is learned.
fn marked(text: &str, learned: bool, colours: bool) -> String {
    let [begin, end] = if colours { GREEN } else { ["", ""] };
    if learned { format!("{begin}{}{text}{}{end}", LEARNED[0], LEARNED[1]) } else { text.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_learned_is_marked_for_a_pipe_too() {
        assert_eq!(marked("a\n", true, false), "⟦a\n⟧");
        assert_eq!(marked("a", true, true), "\x1b[32m⟦a⟧\x1b[0m");
        assert_eq!(marked("a", false, true), "a");
    }

    #[test]
    fn lengths_are_a_line_with_a_histogram() {
        let numbers =
            Texts { lengths: [1, 2, 30, 400, 5000, 60_000], histogram: vec![8, 0, 1, 4], ..Texts::default() };
        let line =
            "  lengths  shortest 1, 25 % 2, 50 % 30, 75 % 400, 95 % 5,000, longest 60,000 tokens  ▕█ ▁▄▏\n";
        assert_eq!(lengths(&numbers), line);
    }

    #[test]
    fn what_is_left_out_is_counted() {
        assert_eq!(left_out(&Texts::default(), 8), "  left out nothing\n");
        let numbers =
            Texts { cut_samples: 2, cut_tokens: 1500, broken: 1, nothing_to_learn: 3, ..Texts::default() };
        let line = "  besides  2 cut to train.seq_len = 8, by 1,500 tokens; 1 broken and left out; 3 left out with nothing to \
                    learn\n";
        assert_eq!(left_out(&numbers, 8), line);
    }
}
