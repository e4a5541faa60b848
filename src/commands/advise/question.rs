//! [`Question`]: the cell to advise on, where it is to be trained, and within which limits.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use itertools::Itertools;
use miette::{Result, miette};

use super::AdviseArgs;
use super::model::{Named, asked};
use crate::advise::{AXES, Advice, Asked, Limits, Place, Rates, advise, keeps, precisions, variants};
use crate::common::{Bytes, Compute, DeviceId, locked};
use crate::device::{Capability, Feature, Target};
use crate::recipe::{Cell, Recipe, Setting, Source};
use crate::run::{Options, measured_ceilings};

/// What is asked.
pub struct Question {
    pub target: Target,
    /// The recipe as it is before `--set`.
    pub source: Source,
    /// With which settings.
    pub settings: Vec<Setting>,
    /// Where the recipe is made from the name of a model.
    pub named: Option<Named>,
    pub recipe: Recipe,
    /// The cell's position in the recipe.
    pub position: usize,
    /// Why the recipe as it is cannot run there.
    pub lacks: Option<String>,
    pub asked: Asked,
    pub limits: Limits,
    pub rates: Option<Rates>,
}

impl Question {
    /// About the recipe or the model of this name.
    ///
    /// # Errors
    /// When there is none, the recipe has several cells and none is chosen, or what is asked for cannot be.
    pub fn new(args: &AdviseArgs, name: &str) -> Result<Self> {
        let target = args.checked.target.clone().unwrap_or_default();
        let (source, named) = asked(args, name, &target)?;
        let settings = settings(args, named.is_some());
        let keeps_precision = args.keep.iter().any(|key| keeps(key, "precision"));
        let (recipe, lacks) = loaded(&source.clone().with(&settings), &target, keeps_precision)?;
        let position = chosen(&recipe, args.cell)?;
        let cell = &recipe.cells[position];
        if !target.has(cell.device_id()) {
            let help = "take a cell that can run here, or describe its machine with --for";
            return Err(miette!(help = help, "the device {} is not here", cell.device));
        }
        let described = matches!(target, Target::Described(_)).then(|| target.resolve("auto").ok()).flatten();
        if described.is_some_and(|there| there != cell.device_id() && cell.device_id() == DeviceId::Cpu) {
            let help = "--set device=auto takes the device that --for describes";
            return Err(miette!(help = help, "the cell runs on the CPU, and --for describes a GPU"));
        }
        if let Some(key) = args.keep.iter().find(|key| !AXES.iter().any(|axis| keeps(key, axis))) {
            return Err(miette!(
                help = format!("the search varies {}; everything else stays as it is", AXES.join(", ")),
                "--keep {key}: the search does not vary this key"
            ));
        }
        let limits = limits(args, cell, &target)?;
        // Blocks that leave a CPU's memory go to the same memory: only who studies that asks for it, by a recipe.
        let in_one_memory = named.is_some() && cell.device_id() == DeviceId::Cpu;
        let asked_for = Asked {
            kept: args.keep.iter().cloned().chain(in_one_memory.then(|| "offload".into())).collect(),
            optimizers: args.optimizers.clone(),
            methods: args.methods.clone(),
        };
        let types: Vec<Compute> =
            precisions(cell, &target, keeps_precision).iter().map(|types| types.compute).collect();
        let rates = rates(&target, cell.device_id(), &types);
        // A recipe that is made has never been meant to run as it is.
        let lacks = lacks.or_else(|| recipe.elsewhere.get(&position).cloned()).filter(|_| named.is_none());
        Ok(Self { target, source, settings, named, recipe, position, lacks, asked: asked_for, limits, rates })
    }

    pub fn cell(&self) -> &Cell {
        &self.recipe.cells[self.position]
    }

    pub fn place(&self) -> Place<'_> {
        Place { target: &self.target, limits: self.limits, rates: self.rates.as_ref() }
    }

    /// # Errors
    /// When a kind or a method is named that there is not.
    pub fn advice(&self) -> Result<Advice> {
        self.advice_at(self.cell(), self.place())
    }

    /// About a cell in the place of the question's, at another place.
    ///
    /// # Errors
    /// As [`Question::advice`].
    pub fn advice_at(&self, cell: &Cell, place: Place) -> Result<Advice> {
        let variants = self.variants(cell, place.target)?;
        Ok(advise(cell, &variants, place, &self.asked.kept))
    }

    /// # Errors
    /// As [`Question::advice`].
    pub fn variants(&self, cell: &Cell, target: &Target) -> Result<Vec<Cell>> {
        variants(cell, target, &self.asked).map_err(|why| miette!(help = "`runner keys` lists them", "{why}"))
    }
}

/// The rates of the device for products of these types, each measured once. A GPU's are measured by a process of its own, so that
/// the cells find its memory free; `None` where that process fails.
fn rates(target: &Target, device: DeviceId, types: &[Compute]) -> Option<Rates> {
    type Measured = (DeviceId, Vec<Compute>, Option<Rates>);
    static KNOWN: Mutex<Vec<Measured>> = Mutex::new(Vec::new());
    if matches!(target, Target::Described(_)) {
        return Rates::measure(target, device, types);
    }
    let mut known = locked(&KNOWN);
    let found = known.iter().find(|(of, has, _)| *of == device && types.iter().all(|own| has.contains(own)));
    if let Some((.., rates)) = found {
        return *rates;
    }
    // The softmax of attention is work in fp32.
    let types: Vec<Compute> = types.iter().copied().chain([Compute::Fp32]).unique().collect();
    let rates = match device {
        DeviceId::Cpu => Rates::measure(target, device, &types),
        DeviceId::Cuda(_) => measured_ceilings(device, &device.info(), &types, &AtomicBool::new(false))
            .filter(|ceilings| ceilings.copy.is_some())
            .map(|ceilings| Rates::of(device, ceilings).with_updates()),
    };
    known.push((device, types, rates));
    rates
}

/// What `--set` and the options for a model say; a recipe that is made has the latter already.
fn settings(args: &AdviseArgs, is_made: bool) -> Vec<Setting> {
    let mut settings = args.checked.settings.set.clone();
    if !is_made {
        let sizes = [("train.seq_len", args.seq_len), ("train.batch_size", args.batch)];
        settings.extend(sizes.into_iter().filter_map(|(key, size)| Some(Setting::new(key, size? as i64))));
        settings.extend(args.data.iter().map(|data| Setting::new("data.corpus", data.display().to_string())));
    }
    settings
}

/// The recipe. If the target lacks the number type of every cell, and others are searched, also the reason.
fn loaded(source: &Source, target: &Target, keeps_precision: bool) -> Result<(Recipe, Option<String>)> {
    let lacks = match Recipe::parse_for(source, target) {
        Ok(recipe) => return Ok((recipe, None)),
        Err(lacks) => lacks,
    };
    let any = target.of_any_capability().filter(|_| !keeps_precision);
    match any.map(|any| Recipe::parse_for(source, &any)) {
        Some(Ok(mut recipe)) if recipe.cells.iter().all(|cell| has_kernels(target, cell)) => {
            for cell in &mut recipe.cells {
                cell.capability = target.capability(cell.device_id());
            }
            Ok((recipe, Some(lacks.to_string())))
        }
        _ => Err(lacks.into()),
    }
}

fn has_kernels(target: &Target, cell: &Cell) -> bool {
    Capability::may_have(target.capability(cell.device_id()), Feature::Kernels)
}

/// The position of the cell to advise on.
fn chosen(recipe: &Recipe, cell: Option<usize>) -> Result<usize> {
    let options = Options { cells: cell.into_iter().collect(), ..Options::default() };
    match options.choose(recipe.cells.len())?[..] {
        [only] => Ok(only),
        _ => Err(miette!(
            help =
                "choose one by --cell K, as `runner plan` numbers them, or set the keys of the grid by --set",
            "the recipe has {} cells, and advice is for one",
            recipe.cells.len()
        )),
    }
}

fn limits(args: &AdviseArgs, cell: &Cell, target: &Target) -> Result<Limits> {
    let device = target.info(cell.device_id());
    let free = Some(device.memory_available).filter(|bytes| *bytes > 0);
    let whole = target.card().map_or(device.memory_total, |(card, _)| card.memory());
    let more = |asked: Option<Bytes>, there: u64| asked.filter(|asked| there > 0 && asked.0 > there);
    if let Some(asked) = more(args.memory, whole) {
        let help = "leave out --memory, or name a larger card with --for";
        return Err(miette!(help = help, "--memory {asked}: the device has {}", Bytes(whole)));
    }
    let written = args.memory.or(cell.measure.memory_limit).map(|bytes| bytes.0);
    // A card's driver takes some of what it has.
    let written = written.map(|bytes| bytes.min(target.card().and(free).unwrap_or(bytes)));
    let memory = written
        .or(free)
        .ok_or_else(|| miette!(help = "write --memory 11GiB", "the memory of the device is not known"))?;
    let host_memory = args.host_memory.or(cell.measure.host_memory_limit).map(|bytes| bytes.0);
    if *target != Target::Here {
        // A CPU's memory is its host's.
        let host = free.filter(|_| cell.device_id() == DeviceId::Cpu);
        return Ok(Limits { memory, host_memory: host_memory.or(host) });
    }
    let host = target.info(DeviceId::Cpu);
    if let Some(asked) = more(args.host_memory, host.memory_total) {
        let help = "leave out --host-memory, or describe another machine with --for";
        return Err(miette!(
            help = help,
            "--host-memory {asked}: this machine has {}",
            Bytes(host.memory_total)
        ));
    }
    let there = Some(host.memory_available).filter(|bytes| *bytes > 0);
    Ok(Limits { memory, host_memory: host_memory.or(there) })
}
