//! HTTPS. The files are read again when they change, as certificates are renewed.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::TlsFiles;
use crate::log::Log;
use crate::models::{Stamp, stamp};

/// What makes connections secret.
pub(crate) struct Tls {
    files: TlsFiles,
    read: Mutex<[Option<Stamp>; 2]>,
    acceptor: RwLock<TlsAcceptor>,
}

fn unreadable(path: &Path, what: &str, error: &pem::Error) -> mcdd::Error {
    match error {
        pem::Error::Io(e) => mcdd::Error::io(std::io::Error::new(e.kind(), e.to_string()), path),
        e => mcdd::Error::setting(format!("there is no {what} in PEM: {e}"))
            .at_file(path)
            .hint(format!("give a file with BEGIN {}", what.to_uppercase())),
    }
}

fn acceptor(files: &TlsFiles) -> mcdd::Result<TlsAcceptor> {
    let certificates = CertificateDer::pem_file_iter(&files.certificates)
        .and_then(|all| all.collect::<Result<Vec<_>, _>>())
        .map_err(|e| unreadable(&files.certificates, "certificate", &e))?;
    if certificates.is_empty() {
        return Err(unreadable(&files.certificates, "certificate", &pem::Error::NoItemsFound));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|e| unreadable(&files.key, "private key", &e))?;
    let unfit = |e| {
        mcdd::Error::setting(format!("certificate and key cannot be used: {e}"))
            .at_file(&files.certificates)
            .hint("give the key that the certificate was made for")
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(certificates, key))
        .map_err(unfit)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

impl Tls {
    /// Reads the files.
    pub(crate) fn open(files: TlsFiles) -> mcdd::Result<Tls> {
        let read = Mutex::new([stamp(&files.certificates), stamp(&files.key)]);
        Ok(Tls { acceptor: RwLock::new(acceptor(&files)?), read, files })
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.acceptor.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the files again if they changed. Files that cannot be used leave the former ones.
    pub(crate) fn refresh(&self, log: Log) {
        let now = [stamp(&self.files.certificates), stamp(&self.files.key)];
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if *read == now {
            return;
        }
        *read = now;
        match acceptor(&self.files) {
            Ok(acceptor) => {
                *self.acceptor.write().unwrap_or_else(PoisonError::into_inner) = acceptor;
                log.line("info", &[("event", "certificate loaded")]);
            }
            Err(e) => {
                let fields =
                    [("event", "certificate not loaded"), ("error", &e.to_string()), ("then", "the former one stays")];
                log.line("error", &fields);
            }
        }
    }
}
