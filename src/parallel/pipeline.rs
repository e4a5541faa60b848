//! `[parallel.pipeline]`: the blocks of a network divided over several ranks.

use super::schedule::order::{Order, Shape};
use super::schedule::pipeline::Schedule;
use crate::keys::key::DefaultValue::{Nothing, Whole};
use crate::keys::section::section;
use crate::keys::values::Values;
use crate::keys::{Key, Rule, Section};

/// Most micro-batches of a step, and most ranks.
const MOST_MICRO_BATCHES: i64 = 1 << 14;
const MOST_STAGES: i64 = 256;
/// Most forwards of a step.
const MOST_TASKS: usize = 1 << 20;

section! {
    /// A pipeline: each rank has a part of the blocks, and the parts of a batch go through all ranks.
    pub struct Pipeline: Section::new(PATH) => {
        /// Ranks that the blocks are divided over, a stage each, or `chunks` of them.
        pub stages: usize = Key::method(Values::Whole { least: 2, most: MOST_STAGES }),
        /// What each rank computes when: GPipe, 1F1B, interleaved 1F1B, PipeDream, or the order of `actions`.
        pub schedule: Schedule = Key::method(Values::Words(Schedule::WORDS)),
        /// Parts of a batch that go through the stages one behind the other.
        pub micro_batches: usize = Key::method(Values::Whole { least: 1, most: MOST_MICRO_BATCHES }),
    } and {
        /// Stages of each rank, where a schedule takes several.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub chunks: Option<usize>,
        /// A written schedule.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub actions: Option<String>,
    }
}

const PATH: &str = "parallel.pipeline";
const CHUNKS: Values = Values::Whole { least: 1, most: MOST_STAGES };
const SEVERAL_CHUNKS: Values = Values::Whole { least: 2, most: MOST_STAGES };

impl Pipeline {
    /// The section, and the keys that only some schedules have.
    pub const SECTIONS: &[Section] = &[
        Self::SECTION,
        Section::of(PATH, "schedule", &["interleaved"]).with(
            "1F1B over several stages of each rank.",
            &[Key::method(SEVERAL_CHUNKS)
                .named("chunks", "Stages of each rank, which are far apart in the network; with one it would be \"1f1b\".")
                .default(Whole(2))],
        ),
        Section::of(PATH, "schedule", &["written"]).with(
            "An order that is written out.",
            &[
                Key::method(CHUNKS)
                    .named("chunks", "Stages of each rank: stage s is on rank s modulo `stages`.")
                    .default(Whole(1)),
                Key::method(Values::Text).named("actions", "`0F0 0B0; 1F0 1B0`: rank by rank, forward and backward of a stage for a micro-batch.").default(Nothing),
            ],
        ),
    ];

    /// Stages of a rank.
    pub fn chunks(&self) -> usize {
        self.chunks.unwrap_or(1)
    }

    pub fn shape(&self) -> Shape {
        Shape { ranks: self.stages, chunks: self.chunks(), micro_batches: self.micro_batches }
    }

    /// The actions of each rank.
    ///
    /// # Panics
    /// When the section was not checked.
    pub fn order(&self) -> Order {
        self.checked_order().expect("checked")
    }

    fn checked_order(&self) -> Result<Order, String> {
        self.schedule.order(self.shape(), self.actions.as_deref().unwrap_or_default())
    }

    /// Refuses keys without an effect, and schedules that cannot be carried out over so many blocks.
    ///
    /// # Errors
    /// Names the key, and what to change.
    pub fn check(&self, layers: usize) -> Result<(), Rule> {
        let Self { stages, schedule, micro_batches, .. } = *self;
        let chunks = self.chunks();
        let key = |name: &'static str| [name, "parallel.pipeline.schedule", "parallel.pipeline"];
        let all = stages * chunks;
        let each = if chunks > 1 { format!(" of {chunks} stages each") } else { String::new() };
        Rule::refuse_if(
            all > layers,
            &key("parallel.pipeline.stages"),
            format!("{stages} ranks{each} need a block for each stage, and the network has {layers}"),
            match layers {
                0 | 1 => "remove parallel.pipeline: one block cannot be divided".into(),
                _ => format!("use {layers} stages in all at most"),
            },
        )?;
        Rule::refuse_if(
            self.chunks.is_some() && !schedule.takes_chunks(),
            &key("parallel.pipeline.chunks"),
            "only an interleaved or a written schedule has several stages a rank",
            "remove chunks, or use schedule = \"interleaved\"",
        )?;
        Rule::refuse_if(
            schedule == Schedule::Interleaved && !micro_batches.is_multiple_of(stages),
            &key("parallel.pipeline.micro_batches"),
            format!(
                "{micro_batches} micro-batches cannot be interleaved: they go through {stages} ranks in groups of \
                 {stages}"
            ),
            format!("make micro_batches a multiple of {stages}, or use schedule = \"1f1b\""),
        )?;
        Rule::refuse_if(
            (schedule == Schedule::Written) != self.actions.is_some(),
            &key("parallel.pipeline.actions"),
            "schedule = \"written\" and actions go together",
            "write both: schedule = \"written\" and actions = \"0F0 0B0; 1F0 1B0\"; or neither",
        )?;
        Rule::refuse_if(
            all * micro_batches > MOST_TASKS,
            &key("parallel.pipeline.micro_batches"),
            format!(
                "{all} stages of {micro_batches} micro-batches are more than {MOST_TASKS} forwards a step"
            ),
            "use fewer micro-batches",
        )?;
        self.checked_order().map(drop).map_err(|wrong| {
            Rule::new(
                &key("parallel.pipeline.actions"),
                format!("this schedule cannot be carried out: {wrong}"),
                "list, for each rank, the forward `sFi` and the backward `sBi` of its stages s for every micro-batch i, \
                 in an order in which none waits for a later one",
            )
        })
    }
}
