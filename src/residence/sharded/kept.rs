//! [`KeptParts`]: a rank's parts of blocks on its device, with their gradients and the optimizer's state.

use std::sync::Arc;

use burn::backend::DispatchTensor;
use burn::module::ParamId;
use burn::tensor::{Device, Tensor, TensorData};

use crate::ops::parameters::flat;
use crate::optim::{DeviceOptimizer, Optimizer, OptimizerConfig, StepSize, Visit, squares};
use crate::residence::ParameterStore;
use crate::residence::engine::Pass;
use crate::residence::layout::{Layout, block_id};
use crate::residence::names::BlockNames;
use crate::residence::strategy::{Function, Movement};
use crate::residence::turns::Turns;

/// They are there all the time, so that nothing is done at a turn's beginning and end. Gradients stay in fp32.
pub struct KeptParts {
    names: BlockNames,
    blocks: Vec<KeptPart>,
    optimizer: Optimizer,
    device: Device,
}

/// The parts of a block, the trained one before the frozen one.
struct KeptPart {
    /// Of the optimizer's state.
    id: ParamId,
    layout: Arc<Layout>,
    values: Vec<Tensor<1>>,
    /// Of the trained part, since the last update.
    gradient: Option<Tensor<1>>,
}

impl KeptParts {
    /// `values`: of each block's parts in the layout's order.
    pub fn new(
        (names, layouts): (BlockNames, Vec<Arc<Layout>>),
        device: Device,
        values: impl Fn(usize) -> Vec<Tensor<1>>,
    ) -> Self {
        let part = |(i, layout)| KeptPart { id: block_id(i), layout, values: values(i), gradient: None };
        let blocks = layouts.into_iter().enumerate().map(part).collect();
        Self { names, blocks, optimizer: Optimizer::None, device }
    }
}

impl Turns for KeptParts {
    fn begin(&mut self, config: &OptimizerConfig, optimizer: &Optimizer) {
        assert!(!matches!(optimizer, Optimizer::OnHost(_)), "the host updates parts that move there");
        let own = |rule| Optimizer::OnDevice(Box::new(DeviceOptimizer::new(rule)));
        self.optimizer = config.rule().map_or(Optimizer::None, own);
    }

    fn enter(&mut self, block: usize, _: Pass) -> Vec<DispatchTensor> {
        self.blocks[block].values.iter().map(|values| values.clone().into_dispatch()).collect()
    }

    fn leave(&mut self, _: usize) {}

    fn take_gradients(&mut self, block: usize, gradients: Vec<DispatchTensor>) {
        let Some(gradient) = gradients.into_iter().next().map(flat) else { return };
        let earlier = &mut self.blocks[block].gradient;
        *earlier = Some(match earlier.take() {
            None => gradient,
            Some(earlier) => earlier + gradient,
        });
    }

    fn discard(&mut self) {
        self.blocks.iter_mut().for_each(|block| block.gradient = None);
    }

    fn layout(&self, block: usize) -> &Arc<Layout> {
        &self.blocks[block].layout
    }

    fn movement(&self) -> Arc<dyn Movement> {
        Arc::new(Function {})
    }
}

impl ParameterStore for KeptParts {
    fn make_states(&mut self) {
        let Optimizer::OnDevice(optimizer) = &mut self.optimizer else { return };
        for block in self.blocks.iter().filter(|block| block.layout.trainable > 0) {
            optimizer.state(block.id, &[block.layout.trainable_elements()], &self.device);
        }
    }

    fn squares(&self) -> Option<Tensor<1>> {
        let gradients = self.blocks.iter().filter_map(|block| block.gradient.clone());
        gradients.map(|gradient| squares(vec![gradient.into_dispatch()])).reduce(|sum, more| sum + more)
    }

    fn update(&mut self, size: &StepSize) {
        let Optimizer::OnDevice(optimizer) = &mut self.optimizer else { return self.discard() };
        let Some(size) = optimizer.begin(size) else { return self.discard() };
        for block in &mut self.blocks {
            if let Some(gradient) = block.gradient.take() {
                let trained = block.values.remove(0);
                block.values.insert(0, optimizer.update(block.id, trained, gradient, &size));
            }
        }
    }

    fn value(&mut self, name: &str) -> Option<TensorData> {
        let layout = |block| self.blocks.get(block).map(|block: &KeptPart| &*block.layout);
        let (block, part) = Layout::place(name, &self.names, layout)?;
        Some(self.blocks[block].values[part].clone().into_data())
    }

    fn visit_states(&mut self, visit: &mut Visit) {
        for (i, block) in self.blocks.iter().enumerate() {
            self.optimizer.visit(block.id, &self.names.name(i), visit);
        }
    }
}
