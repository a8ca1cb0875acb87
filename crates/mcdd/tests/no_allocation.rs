//! A training step and a one-row prediction allocate nothing, once their buffers have grown.

mod counting;

use counting::allocations;
use mcdd::compute::pool::Pool;
use mcdd::data::digits;
use mcdd::head::HeadConfig;
use mcdd::model::{Model, PredictBuffers, Predictions};
use mcdd::net::{Optimizer, OptimizerState, TrainerOptions, Update, default_engine, mlp_with};
use mcdd::seed::Stream;
use mcdd::train::{Batch, HeadLoss, LabeledRows, Preset, Settings};

#[test]
fn steps_and_single_rows_allocate_nothing() {
    let (rows, width) = (1000, 30);
    let mut seed = Stream::new(1, "allocation");
    let x: Vec<f32> = (0..rows * width).map(|_| seed.normal() as f32).collect();
    let y: Vec<u32> = (0..rows).map(|i| (i % 4) as u32).collect();
    let graph = mlp_with(width, Some(5.0), &[64, 64], 32, true);
    for threads in [1, 2] {
        let pool = Pool::new(threads);
        let mut head = HeadConfig::default().build(4, 32, &mut seed);
        let options = TrainerOptions { batch: 200, whole: false, optimizer: Optimizer::default() };
        let mut trainer = default_engine().trainer(&graph, &graph.init(&mut seed), &options).unwrap();
        let mut head_loss = HeadLoss::new(head.as_ref(), trainer.parts());
        let mut state = OptimizerState::new(&options.optimizer, head.params().data.len());
        let specs = head.params().specs().to_vec();
        let order: Vec<usize> = (0..rows - 70).collect(); // the last batch is a short one
        let mut epoch = |step: &mut u64| {
            for rows in order.chunks(200) {
                let batch = Batch::rows(LabeledRows { x: &x, y: &y }, rows);
                trainer.step(rows.len(), &head_loss.on(head.as_ref(), batch), &pool);
                *step += 1;
                let update = Update { optimizer: options.optimizer, rate: 1e-3, weight_decay: 0.0, step: *step };
                trainer.update(&update, &pool);
                let values = &mut head.params_mut().data;
                update.apply(&specs, values, head_loss.gradient(), &mut state, &pool);
                head.project();
            }
        };
        let mut step = 0;
        // A worker that wakes up for the first time allocates once; a step that allocated would do so in every epoch.
        let least = (0..5).map(|_| {
            let before = allocations();
            epoch(&mut step);
            allocations() - before
        });
        assert_eq!(least.min(), Some(0), "{threads} threads");
    }

    let table = digits();
    let model = Model::fit(&table, &Settings::builder().preset(Preset::Paper).epochs(1).build().unwrap()).unwrap();
    let x = model.schema().transform(&table, None).unwrap();
    let width = model.graph().input;
    let (mut out, mut buffers) = (Predictions::default(), PredictBuffers::default());
    model.predict_one(&x[..width], &mut out, &mut buffers).unwrap();
    let least = (0..5).map(|_| {
        let before = allocations();
        for row in x.chunks_exact(width) {
            model.predict_one(row, &mut out, &mut buffers).unwrap();
        }
        allocations() - before
    });
    assert_eq!(least.min(), Some(0));
}
