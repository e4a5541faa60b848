//! `runner init`: a first recipe, for this machine.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use miette::{Result, miette};
use minijinja::{Environment, context};

use crate::common::files::write_whole;
use crate::common::text::argument;
use crate::common::{Bytes, DeviceId};
use crate::device::Target;
use crate::recipe::{Recipe, Source};

#[derive(Debug, Args)]
pub struct InitArgs {
    /// The recipe to write; the text that it trains on is written beside it
    #[arg(default_value = "my.toml")]
    pub recipe: PathBuf,
}

const TEMPLATE: &str = include_str!("init.toml");
/// What the recipe trains on.
const TEXT: &str = include_str!("../../examples/chats/train.jsonl");

/// What a recipe may ask of a device.
#[derive(Clone, Copy)]
struct Size {
    hidden: usize,
    layers: usize,
    heads: usize,
    batch: usize,
    seq_len: usize,
    /// `precision.compute` and `precision.autocast`.
    precision: (&'static str, bool),
}

const BF16: (&str, bool) = ("bf16", true);
const FP32: (&str, bool) = ("fp32", false);

/// The largest first, those of GPUs before that of a CPU.
const SIZES: [Size; 5] = [
    Size { hidden: 768, layers: 12, heads: 12, batch: 16, seq_len: 512, precision: BF16 },
    Size { hidden: 768, layers: 12, heads: 12, batch: 16, seq_len: 512, precision: FP32 },
    Size { hidden: 512, layers: 8, heads: 8, batch: 8, seq_len: 256, precision: BF16 },
    Size { hidden: 512, layers: 8, heads: 8, batch: 8, seq_len: 256, precision: FP32 },
    Size { hidden: 128, layers: 4, heads: 4, batch: 4, seq_len: 256, precision: FP32 },
];
/// How many of them are for GPUs alone.
const OF_GPUS: usize = 4;

/// Writes a recipe that this machine runs as it is, and its text; returns what to do next.
///
/// # Errors
/// When one of the files is there already, or cannot be written.
pub fn init(args: &InitArgs) -> Result<String> {
    let recipe = &args.recipe;
    let text = recipe.with_extension("jsonl");
    if let Some(there) = [recipe, &text].into_iter().find(|path| path.exists()) {
        return Err(miette!(
            help = "name another file: runner init FILE.toml",
            "{} is there already, and nothing was written",
            there.display()
        ));
    }
    // The recipe is checked with its text.
    write(&text, TEXT)?;
    let written = written(recipe, &text, &Target::Here).and_then(|source| write(recipe, &source.text));
    if written.is_err() {
        let _ = fs::remove_file(&text);
    }
    written?;
    let name = argument(recipe.display());
    Ok(format!(
        "{} trains on {}\n`runner run {name}` runs it; its comments say what to change",
        recipe.display(),
        text.display()
    ))
}

fn write(path: &Path, text: &str) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().and_then(|name| name.to_str());
    let written = match name {
        Some(name) => write_whole(folder, Some(name), text.as_bytes()),
        None => Err(std::io::Error::other("it is no name of a file")),
    };
    written.map_err(|e| {
        miette!(
            help = "name a file in a folder that can be written to: runner init FILE.toml",
            "cannot write {}: {e}",
            path.display()
        )
    })
}

/// The recipe of the largest size that the target runs in half of its free memory; else of the smallest.
fn written(path: &Path, text: &Path, target: &Target) -> Result<Source> {
    let device = target.resolve("auto").map_err(|rule| miette!(help = rule.help, "{}", rule.message))?;
    let info = target.info(device);
    let sizes = if device == DeviceId::Cpu { &SIZES[OF_GPUS..] } else { &SIZES[..] };
    let source = |size: &Size| {
        let Size { hidden, layers, heads, batch, seq_len, precision: (compute, autocast) } = *size;
        let values = context! {
            hidden, layers, heads, batch, seq_len, compute,
            // A template would write it as Python does.
            autocast => autocast.to_string(),
            intermediate => 3 * hidden,
            tokens => batch * seq_len,
            name => &info.name,
            memory => Bytes(info.memory_available).to_string(),
            device => device.to_string(),
            file => argument(path.display()),
            corpus => toml::Value::from(text.display().to_string()).to_string(),
        };
        let text = Environment::new().render_str(TEMPLATE, values).expect("a constant template");
        Source { path: path.into(), text: text + "\n" }
    };
    let fits = |source: &Source| {
        let recipe = Recipe::parse_for(source, target).ok().filter(|recipe| recipe.elsewhere.is_empty());
        let most = recipe.and_then(|recipe| recipe.cells.iter().map(|cell| cell.estimate().total()).max());
        most.is_some_and(|most| info.memory_available == 0 || most <= info.memory_available / 2)
    };
    let (last, larger) = sizes.split_last().expect("there are sizes");
    Ok(larger.iter().map(&source).find(fits).unwrap_or_else(|| source(last)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the memory and the features of the device; what a larger card has room for a smaller one has not.
    #[test]
    fn the_recipe_fits_the_device() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("my.jsonl");
        fs::write(&text, TEXT).unwrap();
        for (device, hidden, compute) in [
            ("h100", 768, "bf16"),
            ("cuda, 4 GiB, sm_89", 512, "bf16"),
            ("cuda, 24 GiB, sm_75", 768, "fp32"),
            ("cuda, 500 MiB, sm_89", 128, "fp32"),
            ("cpu, 8 GiB", 128, "fp32"),
        ] {
            let target: Target = device.parse().unwrap();
            let source = written(Path::new("my.toml"), &text, &target).unwrap();
            let recipe = Recipe::parse_for(&source, &target).unwrap_or_else(|e| panic!("{device}: {e:?}"));
            let cell = &recipe.cells[0];
            let settings = cell.settings();
            assert_eq!(recipe.cells.len(), 2);
            assert_eq!(
                (&settings["model.hidden_size"], &settings["precision.compute"]),
                (&hidden.into(), &compute.into()),
                "{device}"
            );
        }
    }
}
