//! Listeners: a listener of the state is one socket or several, depending on its address.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use weir_nvme_target::{FrontError, ListenerConfig};

use super::ReactorEngine;
use crate::engine::EngineError;
use crate::name::{ListenerAddress, ListenerHost};
use crate::state::{ListenerKind, Portal, Protocol, SocketOptions, State};

/// A listener that is open.
pub(super) struct Bound {
    /// Where it listens.
    pub(super) addresses: Vec<SocketAddr>,
    /// What it is.
    pub(super) listener: Portal,
}

/// The sockets whose options are others in `state`; they are noted as set.
pub(super) fn changed_options(
    bound: &mut BTreeMap<ListenerAddress, Bound>,
    state: &State,
) -> Vec<(SocketAddr, SocketOptions)> {
    let mut changed = Vec::new();
    for (address, bound) in bound {
        let Some(wanted) = state.portals.get(address) else {
            continue;
        };
        if wanted.socket_options != bound.listener.socket_options {
            bound.listener.socket_options = wanted.socket_options.clone();
            let options = |address: &SocketAddr| (*address, wanted.socket_options.clone());
            changed.extend(bound.addresses.iter().map(options));
        }
    }
    changed
}

impl ReactorEngine {
    /// The options as sockets have them.
    pub(super) fn socket_options(&self, options: &SocketOptions) -> weir_reactor::SocketOptions {
        let given = super::snapshot::socket_options(options);
        weir_reactor::SocketOptions {
            user_timeout: Some(self.user_timeout),
            keep_alive: Some(self.keep_alive),
            send_buffer: given.send_buffer.or(self.socket_buffer),
            receive_buffer: given.receive_buffer.or(self.socket_buffer),
            ..given
        }
    }

    pub(super) async fn listen(
        &self,
        address: &ListenerAddress,
        listener: &Portal,
    ) -> Result<(), EngineError> {
        let fail = |reason: String, in_use: bool| EngineError::Listen {
            address: address.clone(),
            reason,
            in_use,
        };
        let wanted = self
            .addresses_of(address)
            .await
            .map_err(|error| fail(error.to_string(), false))?;
        let mut addresses = Vec::new();
        for wanted in wanted {
            match self
                .target
                .add_listener(self.listener_config(address.host(), wanted, listener))
                .await
            {
                Ok(bound) => addresses.push(bound),
                Err(error) => {
                    self.close_all(&addresses).await;
                    return Err(match error {
                        FrontError::Listen { error, .. } => {
                            let in_use = error.kind() == io::ErrorKind::AddrInUse;
                            fail(error.to_string(), in_use)
                        }
                        other => fail(other.to_string(), false),
                    });
                }
            }
        }
        let bound = Bound {
            addresses,
            listener: listener.clone(),
        };
        self.books().listeners.insert(address.clone(), bound);
        Ok(())
    }

    fn listener_config(
        &self,
        host: &ListenerHost,
        address: SocketAddr,
        listener: &Portal,
    ) -> ListenerConfig {
        let Protocol::Nvme { kind } = listener.protocol;
        let mut config = ListenerConfig::new(address);
        config.options = self.socket_options(&listener.socket_options);
        // `*` is both families; what is written as an IPv6 address is IPv6 alone.
        config.options.only_v6 = address.is_ipv6().then_some(*host != ListenerHost::Any);
        config.discovery_only = kind == ListenerKind::Discovery;
        config
    }

    async fn close_all(&self, addresses: &[SocketAddr]) {
        for address in addresses {
            if let Err(error) = self.target.remove_listener(*address).await {
                tracing::warn!(%address, %error, "a listener stays open");
            }
        }
    }

    /// The sockets that a listener is.
    async fn addresses_of(&self, address: &ListenerAddress) -> io::Result<Vec<SocketAddr>> {
        let port = address.port();
        match address.host() {
            ListenerHost::Address(ip) => Ok(vec![SocketAddr::new(*ip, port)]),
            ListenerHost::Any if has_ipv6() => {
                Ok(vec![SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port)])
            }
            ListenerHost::Any => Ok(vec![SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port)]),
            ListenerHost::Name(name) => {
                let (system, name) = (self.system(), name.clone());
                let resolving = tokio::task::spawn_blocking(move || system.resolve(&name, port));
                let mut found = resolving.await.map_err(io::Error::other)??;
                found.sort();
                found.dedup();
                Ok(found)
            }
        }
    }

    /// Serves at a listener that the service manager opened.
    pub(super) async fn adopt(
        &self,
        name: String,
        listener: std::net::TcpListener,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let listener = self.system.adopt_listener(listener.into())?;
        let mut config = ListenerConfig::new(listener.address());
        config.options = self.socket_options(&SocketOptions::default());
        config.inherited = Some(listener);
        let address = self.target.add_listener(config).await?;
        tracing::info!(name, %address, "inherited a listener");
        self.books().inherited.push((name, address));
        Ok(())
    }
}

/// Whether this machine has IPv6 at all.
fn has_ipv6() -> bool {
    std::path::Path::new("/proc/net/if_inet6").exists()
}
