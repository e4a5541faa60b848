//! Refuses LoRA's keys that do not go with a model.

use itertools::Itertools;

use super::targets::{Place, is_of_module, patterns};
use super::{Biases, Lora, Targets, listed};
use crate::keys::Rule;
use crate::params::table::{Group, Table};
use crate::params::tuning::{LinearLayer, Method, Own};

const TARGETS: &str = "tuning.target_modules";

impl Lora {
    /// Refuses layers that the model does not have, and ranks above theirs.
    pub(super) fn check_targets(&self, layers: &[LinearLayer], own: Own<'_>) -> Result<(), Rule> {
        let known = layers.iter().map(|(name, _)| name.as_str()).sorted().dedup().join(", ");
        let help = format!("write target_modules = \"{known}\", or some of them");
        let refuse = |what: String| {
            let message = format!("{TARGETS} {what}, and this model's linear layers are {known}");
            Rule::new(&[TARGETS, "tuning.method"], message, help.clone())
        };
        let targets = self.targets().map_err(|e| refuse(format!("is no regular expression ({e})")))?;
        if let Targets::Ends(ends) = &targets {
            let is_name = |end: &str| layers.iter().any(|(name, _)| name == end);
            let unknown = ends.iter().find(|end| !end.contains('.') && !is_name(end));
            if let Some(unknown) = unknown {
                return Err(refuse(format!("names {unknown}")));
            }
            if let Some(twice) = ends.iter().duplicates().next() {
                return Err(Rule::new(
                    &[TARGETS],
                    format!("{TARGETS} names {twice} twice, and a layer has one adapter"),
                    format!("write target_modules = \"{}\"", ends.iter().unique().join(", ")),
                ));
            }
        }
        if self.is_alike() {
            let mut adapted = layers.iter().filter(|(name, _)| self.adapts(name)).peekable();
            if adapted.peek().is_none() {
                return Err(refuse("names no layer".into()));
            }
            return adapted.try_for_each(|(name, sizes)| self.check_rank(name, *sizes));
        }
        let own = own();
        let places = Place::of_all(&own);
        self.check_blocks(&targets, &places)?;
        let placed = self.placed(&own);
        if let Targets::Ends(ends) = &targets {
            let fits = |end: &str| placed.iter().any(|(place, _)| Targets::Ends(vec![end]).has(&place.path));
            if let Some(unknown) = ends.iter().find(|end| !fits(end)) {
                return Err(refuse(format!("names {unknown}")));
            }
        }
        if placed.is_empty() {
            return Err(refuse("names no layer".into()));
        }
        self.check_patterns(&placed)?;
        same_names(&placed, &places)?;
        placed.iter().try_for_each(|(place, settings)| {
            let mut layers = layers.iter().filter(|(name, _)| name == place.layer());
            layers.try_for_each(|(name, sizes)| settings.check_rank(name, *sizes))
        })
    }

    fn check_blocks(&self, targets: &Targets<'_>, places: &[Place]) -> Result<(), Rule> {
        const KEY: &str = "tuning.layers_to_transform";
        let count = places.iter().map(|place| place.block + 1).max().unwrap_or(0);
        let help = format!("write the numbers of blocks from 0 to {}", count.saturating_sub(1));
        let blocks = self.blocks().map_err(|e| Rule::new(&[KEY], format!("{KEY}: {e}"), help.clone()))?;
        let Some(blocks) = blocks else { return Ok(()) };
        Rule::refuse_if(
            matches!(targets, Targets::Whole(_)),
            &[KEY, TARGETS],
            format!("{KEY} does not go with a regular expression, which has the numbers of blocks itself"),
            "remove it, or name the layers in target_modules",
        )?;
        let wrong = blocks.iter().find(|block| **block >= count);
        let wrong = wrong.map_or(blocks.is_empty().then(|| "names no block".into()), |block| {
            Some(format!("names block {block}, and the model has {count}"))
        });
        wrong.map_or(Ok(()), |wrong| Err(Rule::new(&[KEY], format!("{KEY} {wrong}"), help)))
    }

    /// Every pattern has a number that can be used, and a layer; and a layer one number, since JSON keeps no order.
    fn check_patterns(&self, placed: &[(Place, Self)]) -> Result<(), Rule> {
        let keys =
            [("tuning.rank_pattern", &self.rank_pattern), ("tuning.alpha_pattern", &self.alpha_pattern)];
        for (key, text) in keys {
            let help =
                "write \"q_proj = 4, layers.0.*v_proj = 16\": the end of a layer's path, and its value";
            let refuse = |what: String| Rule::new(&[key], format!("{key}: {what}"), help);
            let all = patterns(text.as_deref().unwrap_or_default()).map_err(refuse)?;
            for (place, _) in placed {
                let mut values = all.iter().filter(|pattern| pattern.fits(&place.path));
                let Some(first) = values.next() else { continue };
                if let Some(other) = values.find(|other| other.value != first.value) {
                    let (path, texts) = (&place.path, [first.text, other.text]);
                    return Err(refuse(format!(
                        "both {} and {} fit {path}, with other values",
                        texts[0], texts[1]
                    )));
                }
            }
            for pattern in all {
                let whole = key.ends_with("alpha_pattern") || pattern.value.fract() == 0.0;
                if !(pattern.value > 0.0 && pattern.value.is_finite() && whole) {
                    return Err(refuse(format!(
                        "{} = {} is no {}",
                        pattern.text,
                        pattern.value,
                        match whole {
                            true => "number above 0",
                            false => "whole number",
                        }
                    )));
                }
                if !placed.iter().any(|(place, _)| pattern.fits(&place.path)) {
                    return Err(refuse(format!("{} is the end of no adapted layer's path", pattern.text)));
                }
            }
        }
        Ok(())
    }

    fn check_rank(&self, name: &str, [inputs, outputs]: [usize; 2]) -> Result<(), Rule> {
        let most = inputs.min(outputs);
        Rule::refuse_if(
            self.rank > most,
            &["tuning.rank"],
            format!(
                "tuning.rank = {} is larger than {name}, which has {inputs} inputs and {outputs} outputs: no matrix of \
                 that shape has a higher rank than {most}",
                self.rank
            ),
            format!("set tuning.rank to {most} or less, or leave {name} out of target_modules"),
        )
    }

    /// Refuses modules that are not beside the blocks, and biases that are not there.
    pub(super) fn check_saved(&self, own: Own<'_>) -> Result<(), Rule> {
        if self.bias != Biases::None {
            let is_bias = |name: &String| name.ends_with(".bias");
            let is_there = match self.bias {
                Biases::LoraOnly => self.saved_of(own).iter().any(is_bias),
                _ => own().entries.iter().any(|entry| is_bias(&entry.name)),
            };
            Rule::refuse_if(
                !is_there,
                &["tuning.bias"],
                format!(
                    "tuning.bias = \"{}\" trains nothing: there are no such biases",
                    <&str>::from(self.bias)
                ),
                "remove it",
            )?;
        }
        let Some(text) = &self.modules_to_save else { return Ok(()) };
        let own = own();
        let wrong = listed(text).find_map(|module| Some((module, wrong_module(&own, module)?)));
        let wrong = wrong.or_else(|| listed(text).next().is_none().then_some(("", "names nothing")));
        wrong.map_or(Ok(()), |(module, why)| {
            Err(Rule::new(
                &["tuning.modules_to_save"],
                format!("tuning.modules_to_save {why}: {module}"),
                "write modules_to_save = \"embed_tokens, lm_head\", or some modules beside the blocks; those in blocks \
                 are trained by tuning.bias, or by tuning.method = \"full\"",
            ))
        })
    }
}

fn wrong_module(own: &Table, module: &str) -> Option<&'static str> {
    let groups = own.entries.iter().filter(|entry| is_of_module(own, &entry.name, module));
    let mut groups = groups.map(|entry| entry.group).peekable();
    match groups.peek() {
        None => Some("names a module that the model does not have"),
        Some(_) => groups.any(|group| matches!(group, Group::Block(_))).then_some("names a module of blocks"),
    }
}

/// Two layers of one name in a block have the same adapter.
fn same_names(placed: &[(Place, Lora)], places: &[Place]) -> Result<(), Rule> {
    let others = |one: &Place| {
        let same = |place: &&Place| place.block == one.block && place.layer() == one.layer();
        places.iter().filter(same).map(|place| place.path.clone()).collect::<Vec<_>>()
    };
    let settings = |path: &str| placed.iter().find(|(place, _)| place.path == path).map(|(_, own)| own);
    let apart = placed.iter().find_map(|(place, own)| {
        let other = others(place).into_iter().find(|path| settings(path) != Some(own))?;
        Some((&place.path, other))
    });
    apart.map_or(Ok(()), |(path, other)| {
        Err(Rule::new(
            &[TARGETS, "tuning.rank_pattern", "tuning.alpha_pattern"],
            format!("{path} and {other} have one name, and would have different adapters"),
            "name both or none of them, with one rank and alpha",
        ))
    })
}
