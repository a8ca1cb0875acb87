//! A training step and a one-row prediction allocate nothing, once their buffers have grown.

mod counting;

use counting::allocations;
use mcdd::compute::pool::Pool;
use mcdd::data::digits;
use mcdd::head::HeadConfig;
use mcdd::model::{Model, PredictBuffers, Predictions};
use mcdd::net::cpu::Engine;
use mcdd::net::mlp;
use mcdd::seed::Stream;
use mcdd::train::optim::{Optimizer, State, update};
use mcdd::train::{LabeledRows, Preset, Settings, Shards};

#[test]
fn steps_and_single_rows_allocate_nothing() {
    let (rows, width) = (1000, 30);
    let mut seed = Stream::new(1, "allocation");
    let x: Vec<f32> = (0..rows * width).map(|_| seed.normal() as f32).collect();
    let y: Vec<u32> = (0..rows).map(|i| (i % 4) as u32).collect();
    let graph = mlp(width, &[64, 64], 32);
    for threads in [1, 2] {
        let pool = Pool::new(threads);
        let mut params = graph.init(&mut seed);
        let mut head = HeadConfig::default().build(4, 32, &mut seed);
        let optimizer = Optimizer::default();
        let mut states = (State::new(&optimizer, &params), State::new(&optimizer, head.params()));
        let mut engine = Engine::new(&graph).unwrap();
        engine.load(&params, &pool);
        let mut shards = Shards::new(&params, head.params(), 200, width, false);
        let order: Vec<usize> = (0..rows - 70).collect(); // the last batch is a short one
        let mut epoch = |step: &mut u64| {
            for batch in order.chunks(200) {
                shards.run(&engine, &params, head.as_ref(), LabeledRows { x: &x, y: &y }, batch, &pool);
                *step += 1;
                update(&optimizer, 1e-3, 0.0, *step, &mut params, shards.net_gradients(), &mut states.0, &pool);
                let own = head.params_mut();
                update(&optimizer, 1e-3, 0.0, *step, own, shards.head_gradients(), &mut states.1, &pool);
                head.project();
                engine.load(&params, &pool);
            }
        };
        let mut step = 0;
        // A worker that wakes up for the first time allocates once, whenever that is; a step that allocated would do so in
        // every epoch.
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
    let (mut out, mut scratch) = (Predictions::default(), PredictBuffers::default());
    model.predict_one(&x[..width], &mut out, &mut scratch).unwrap();
    let least = (0..5).map(|_| {
        let before = allocations();
        for row in x.chunks_exact(width) {
            model.predict_one(row, &mut out, &mut scratch).unwrap();
        }
        allocations() - before
    });
    assert_eq!(least.min(), Some(0));
}
