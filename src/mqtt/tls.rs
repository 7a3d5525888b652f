//! TLS of the connection: rustls with ring, a CA file, an optional client certificate.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// Why a certificate file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum TlsError {
    /// The file is missing, unreadable or no PEM.
    #[error("cannot read {what} {}: expected a PEM file readable for the daemon's user", path.display())]
    File {
        /// Which key of the configuration.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: rustls_pki_types::pem::Error,
    },
    /// No certificate in the file.
    #[error("{what} {} holds no certificate: expected a PEM file with BEGIN CERTIFICATE", path.display())]
    Empty {
        /// Which key of the configuration.
        what: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// rustls refuses the material.
    #[error("the certificate files cannot be used: check that client_key_file belongs to client_cert_file")]
    Refused(#[from] rustls::Error),
}

/// The TLS settings of a client that trusts `ca_file` only and shows `client` (certificate chain and key) if given.
pub(super) fn client_config(ca_file: &Path, client: Option<(&Path, &Path)>) -> Result<Arc<ClientConfig>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("ca_file", ca_file)? {
        roots.add(certificate)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let config = match client {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let chain = certificates("client_cert_file", chain)?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(|source| TlsError::File {
                what: "client_key_file",
                path: key.to_path_buf(),
                source,
            })?;
            builder.with_client_auth_cert(chain, key)?
        }
    };
    Ok(Arc::new(config))
}

fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let file = |source| TlsError::File { what, path: path.to_path_buf(), source };
    let certificates: Vec<_> =
        CertificateDer::pem_file_iter(path).map_err(file)?.collect::<Result<_, _>>().map_err(file)?;
    if certificates.is_empty() {
        return Err(TlsError::Empty { what, path: path.to_path_buf() });
    }
    Ok(certificates)
}
