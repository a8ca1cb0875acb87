//! Requests without a network, for tests and fuzzing.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt as _;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use mcdd::compute::pool::Pool;
use tokio::runtime::{Builder, Runtime};

use crate::app::App;
use crate::config::Config;
use crate::http;
use crate::log::Log;
use crate::models::Models;

/// A server without a port: it answers requests that are handed to it.
pub struct Local {
    app: Arc<App>,
    runtime: Runtime,
    service: TowerToHyperService<Router>,
    working: Option<JoinHandle<()>>,
}

impl Local {
    /// Reads the models.
    ///
    /// # Errors
    /// If a model cannot be read, or the system refuses threads.
    pub fn new(config: Config) -> mcdd::Result<Local> {
        let system = |e: std::io::Error| mcdd::Error::setting(format!("cannot start: {e}"));
        let models = Models::open(config.clone(), Log)?;
        let app = Arc::new(App::new(config, models, None, Log));
        let runtime = Builder::new_current_thread().enable_all().build().map_err(system)?;
        let service = TowerToHyperService::new(http::router(Arc::clone(&app)));
        let working = {
            let app = Arc::clone(&app);
            let work = move || app.queue.work(&Pool::new(app.config.threads), || app.metrics.panicked());
            thread::Builder::new().name("predict".into()).spawn(work).map_err(system)?
        };
        Ok(Local { app, runtime, service, working: Some(working) })
    }

    /// The status and the body of the answer; `None` for what is no request in HTTP.
    pub fn answer(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &[u8])],
        body: Vec<u8>,
    ) -> Option<(u16, Vec<u8>)> {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body)).ok()?;
        self.runtime.block_on(async {
            let Ok(response) = self.service.call(request).await;
            let status = response.status().as_u16();
            let body = response.into_body().collect().await.ok()?;
            Some((status, body.to_bytes().to_vec()))
        })
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.app.queue.close();
        if let Some(working) = self.working.take() {
            let _ = working.join();
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::config::Limits;
    use crate::models::Served;
    use mcdd::data::{ReadOptions, Table};
    use mcdd::model::Model;
    use mcdd::train::{Preset, Settings};

    fn config() -> (tempfile::TempDir, Config) {
        let rows: String = (0..60).map(|i| format!("{},{},{}\n", i % 2, i % 7, ["a", "b"][i % 2])).collect();
        let label = ReadOptions { label: "label".parse().unwrap_or_default(), ..Default::default() };
        let table = Table::from_bytes(format!("x,y,label\n{rows}").into_bytes(), "train.csv", &label).unwrap();
        let settings = Settings::builder().preset(Preset::Fast).epochs(1).build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.mcdd");
        std::fs::write(&path, Model::fit(&table, &settings).unwrap().to_bytes().unwrap()).unwrap();
        let config = Config {
            models: vec![path],
            listen: ([127, 0, 0, 1], 0).into(),
            threads: 1,
            token: None,
            alpha: 0.01,
            state: None,
            log_requests: false,
            tls: None,
            otlp: None,
            limits: Limits::default(),
            model_limits: Vec::new(),
        };
        (folder, config)
    }

    /// A small model.
    pub(crate) fn served() -> (tempfile::TempDir, Arc<Served>) {
        let (folder, config) = config();
        let models = Models::open(config, Log).unwrap();
        let served = Arc::clone(&models.all()["m"]);
        (folder, served)
    }

    #[test]
    fn a_panic_in_a_request_is_a_500_and_the_next_is_answered() {
        let (_folder, config) = config();
        let local = Local::new(config).unwrap();
        let (status, body) = local.answer("GET", "/panic", &[], Vec::new()).unwrap();
        assert!(status == 500 && body.starts_with(b"{\"error\":"), "{status} {}", String::from_utf8_lossy(&body));
        assert_eq!(local.answer("POST", "/predict", &[], b"x,y\n1,2\n".to_vec()).unwrap().0, 200);
        let metrics = String::from_utf8(local.answer("GET", "/metrics", &[], Vec::new()).unwrap().1).unwrap();
        assert!(metrics.contains("mcdd_panics_total 1"), "{metrics}");
    }
}
