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
