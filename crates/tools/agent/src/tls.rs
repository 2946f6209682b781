//! Who an agent is: its certificate, and what a coordinator takes for proof.
//!
//! A certificate is trusted because an authority signed it for the agent's name, or because its fingerprint was told. The certificate that an agent
//! makes for itself is of the second kind: it does not expire, and it is kept so that its fingerprint stays.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use ring::digest;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig,
    SignatureScheme,
};

use crate::token::{TokenError, check_private};

/// What both sides say that they speak, so that no other service on TLS is taken for an agent. It is the same in every version: which one it is stands in the
/// first message, so that a refusal can name both.
const APPLICATION: &[u8] = b"weir-agent";

/// Whether both sides have agreed on this protocol (RFC 7301, section 3.2: a side that names none gets none).
pub(crate) fn is_agreed(protocol: Option<&[u8]>) -> bool {
    protocol == Some(APPLICATION)
}
/// The file with the certificate that an agent made for itself, and its key.
const OWN_FILE: &str = "agent.pem";
/// Bytes of a SHA-256 digest.
const DIGEST_BYTES: usize = 32;

/// Why there is no certificate, or none to trust.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is not what it must be.
    #[error("{path} holds no {what}: {reason}", path = .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
        /// Why not.
        reason: String,
    },
    /// The key lies open.
    #[error(transparent)]
    Key(#[from] TokenError),
    /// A certificate could not be made or kept.
    #[error("no certificate can be made and kept in {folder}: {reason}", folder = .folder.display())]
    Make {
        /// Where.
        folder: PathBuf,
        /// Why.
        reason: String,
    },
    /// Certificate and key are of no use to TLS.
    #[error("certificate and key do not make an identity: {0}")]
    Identity(rustls::Error),
    /// The authorities are of no use.
    #[error("{path} holds no authority that signs certificates: {reason}", path = .path.display())]
    Authority {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Nothing to trust.
    #[error(
        "nothing says which agents are the right ones: name --agent-fingerprint, which `weir agent` prints, or --agent-ca with who signed their certificates"
    )]
    NothingTrusted,
}

/// The SHA-256 digest of a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; DIGEST_BYTES]);

/// A text that is no fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no fingerprint: 64 hexadecimal digits are, with or without colons, as `weir agent` prints them"
)]
pub struct FingerprintError(String);

impl Fingerprint {
    fn of(certificate: &CertificateDer<'_>) -> Self {
        let digest = digest::digest(&digest::SHA256, certificate);
        let bytes = digest.as_ref().try_into();
        Fingerprint(bytes.expect("a SHA-256 digest has its length"))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("sha256:")?;
        self.0
            .iter()
            .try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    fn from_str(text: &str) -> Result<Self, FingerprintError> {
        let wrong = || FingerprintError(text.to_owned());
        let lower = text.to_ascii_lowercase();
        let digits = lower
            .strip_prefix("sha256:")
            .unwrap_or(&lower)
            .replace(':', "");
        if digits.len() != 2 * DIGEST_BYTES || !digits.is_ascii() {
            return Err(wrong());
        }
        let mut bytes = [0; DIGEST_BYTES];
        for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&digits[at..at + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Fingerprint(bytes))
    }
}

/// What an agent proves itself with.
#[derive(Debug)]
pub struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    /// A certificate, with those of its authorities behind it, and its key, from PEM files.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn from_files(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let file = File::open(key).map_err(|error| none(key, "private key", error))?;
        check_private(key, &file)?;
        Ok(Identity {
            chain: certificates(certificate)?,
            key: PrivateKeyDer::from_pem_file(key)
                .map_err(|error| none(key, "private key", error))?,
        })
    }

    /// The certificate that was made for itself and kept in `folder`; made now for these names where there is none.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn own(folder: &Path, names: &[String]) -> Result<Self, TlsError> {
        let path = folder.join(OWN_FILE);
        if !path.exists() {
            make(folder, &path, names).map_err(|reason| TlsError::Make {
                folder: folder.to_owned(),
                reason,
            })?;
        }
        Identity::from_files(&path, &path)
    }

    /// The fingerprint of the certificate.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.chain[0])
    }

    /// TLS with it.
    ///
    /// # Errors
    /// [`TlsError::Identity`].
    pub fn server(self) -> Result<Arc<ServerConfig>, TlsError> {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .and_then(|builder| {
                builder
                    .with_no_client_auth()
                    .with_single_cert(self.chain, self.key)
            })
            .map_err(TlsError::Identity)?;
        config.alpn_protocols = vec![APPLICATION.to_vec()];
        Ok(Arc::new(config))
    }
}

fn none(path: &Path, what: &'static str, reason: impl ToString) -> TlsError {
    TlsError::File {
        path: path.to_owned(),
        what,
        reason: reason.to_string(),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |reason: String| none(path, "certificate", reason);
    let read = CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))?;
    let all = read.collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|error| wrong(error.to_string()))?;
    match all.is_empty() {
        true => Err(wrong("there is none".to_owned())),
        false => Ok(all),
    }
}

/// Makes a certificate that signs itself, and puts it and its key into a file that is there whole or not at all.
fn make(folder: &Path, path: &Path, names: &[String]) -> Result<(), String> {
    fn text(error: impl ToString) -> String {
        error.to_string()
    }
    let key = rcgen::KeyPair::generate().map_err(text)?;
    let mut parameters = rcgen::CertificateParams::new(names.to_vec()).map_err(text)?;
    parameters
        .distinguished_name
        .push(rcgen::DnType::CommonName, "weir agent");
    let certificate = parameters.self_signed(&key).map_err(text)?;
    fs::create_dir_all(folder).map_err(text)?;
    let unfinished = folder.join(format!("{OWN_FILE}.new"));
    let write = || -> io::Result<()> {
        // What an earlier attempt left is of no use.
        let _ = fs::remove_file(&unfinished);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&unfinished)?;
        file.write_all(certificate.pem().as_bytes())?;
        file.write_all(key.serialize_pem().as_bytes())?;
        file.sync_all()?;
        fs::rename(&unfinished, path)
    };
    write().map_err(text)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Which agents a coordinator trusts.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    /// Agents whose certificate has one of these.
    pub fingerprints: Vec<Fingerprint>,
    /// Agents whose certificate was signed for their name by an authority of this PEM file.
    pub authorities: Option<PathBuf>,
}

impl Trust {
    /// TLS that trusts these, and where it notes the fingerprint of the certificate that it saw.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn client(&self) -> Result<(Arc<ClientConfig>, Seen), TlsError> {
        let provider = provider();
        let signed = match &self.authorities {
            None if self.fingerprints.is_empty() => return Err(TlsError::NothingTrusted),
            None => None,
            Some(path) => Some(signed_by(path, &provider)?),
        };
        let seen = Seen::default();
        let verifier = Verifier {
            fingerprints: self.fingerprints.clone(),
            signed,
            seen: seen.clone(),
            provider: Arc::clone(&provider),
        };
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(TlsError::Identity)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        config.alpn_protocols = vec![APPLICATION.to_vec()];
        // Each connection shows its certificate.
        config.resumption = rustls::client::Resumption::disabled();
        Ok((Arc::new(config), seen))
    }
}

fn signed_by(
    path: &Path,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, TlsError> {
    let wrong = |reason: String| TlsError::Authority {
        path: path.to_owned(),
        reason,
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        let added = roots.add(certificate);
        added.map_err(|error| wrong(error.to_string()))?;
    }
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|error| wrong(error.to_string()))
}

/// The fingerprint of the certificate that was seen last.
#[derive(Debug, Clone, Default)]
pub struct Seen(Arc<Mutex<Option<Fingerprint>>>);

impl Seen {
    /// The fingerprint, where there was a certificate.
    #[must_use]
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Verifier {
    fingerprints: Vec<Fingerprint>,
    signed: Option<Arc<WebPkiServerVerifier>>,
    seen: Seen,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let fingerprint = Fingerprint::of(end_entity);
        *self.seen.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(fingerprint);
        if self.fingerprints.contains(&fingerprint) {
            return Ok(ServerCertVerified::assertion());
        }
        match &self.signed {
            None => Err(CertificateError::ApplicationVerificationFailure.into()),
            Some(signed) => signed.verify_server_cert(
                end_entity,
                intermediates,
                server_name,
                ocsp_response,
                now,
            ),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_certificate_is_made_once_and_kept() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let folder = folder.path().join("deeper");
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let first = Identity::own(&folder, &names).expect("it is made");
        let again = Identity::own(&folder, &names).expect("it is there");
        assert_eq!(first.fingerprint(), again.fingerprint());
        let path = folder.join(OWN_FILE);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = Identity::own(&folder, &names).unwrap_err();
        assert!(error.to_string().contains("chmod 600"), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "nothing").unwrap();
        let error = Identity::own(&folder, &names).unwrap_err();
        assert!(error.to_string().contains("holds no"), "{error}");
    }

    #[test]
    fn a_fingerprint_reads_back_as_it_is_written() {
        let text = format!("sha256:{}", "0f".repeat(32));
        let read: Fingerprint = text.parse().expect("it is one");
        assert_eq!(read.to_string(), text);
        let colons = ["0F"; 32].join(":");
        assert_eq!(colons.parse(), Ok(read));
        for wrong in ["", "sha256:", "0f", &"0g".repeat(32), &"ä".repeat(32)] {
            assert!(wrong.parse::<Fingerprint>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn nothing_trusted_is_refused() {
        assert!(matches!(
            Trust::default().client(),
            Err(TlsError::NothingTrusted)
        ));
    }
}
