//! Listeners: a listener of the state is one socket or several, depending on its address.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use weir_front::{FrontError, ListenAt};

use super::{INHERITED, ReactorEngine};
use crate::engine::{EngineError, SocketReport};
use crate::name::{Advertised, ListenerAddress, ListenerHost};
use crate::state::{Portal, Protocol, ProtocolName, SocketOptions, State};

/// A socket that listens.
pub(super) struct Socket {
    /// Where.
    pub(super) address: SocketAddr,
    /// What is spoken there.
    pub(super) protocol: Protocol,
    /// Where hosts are told to connect, where that is another address.
    pub(super) advertise: Option<Advertised>,
}

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
) -> Vec<(Protocol, SocketAddr, SocketOptions)> {
    let mut changed = Vec::new();
    for (address, bound) in bound {
        let Some(wanted) = state.portals.get(address) else {
            continue;
        };
        if wanted.socket_options != bound.listener.socket_options {
            bound.listener.socket_options = wanted.socket_options.clone();
            let protocol = wanted.protocol;
            let options =
                |address: &SocketAddr| (protocol, *address, wanted.socket_options.clone());
            changed.extend(bound.addresses.iter().map(options));
        }
    }
    changed
}

impl ReactorEngine {
    /// The options as sockets have them.
    pub(super) fn socket_options(&self, options: &SocketOptions) -> weir_reactor::SocketOptions {
        let given = socket_options(options);
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
        if !self.front_ends.speak(listener.protocol) {
            let protocol = ProtocolName::from(listener.protocol);
            return Err(fail(
                format!("this version does not serve {protocol}"),
                false,
            ));
        }
        let wanted = self
            .addresses_of(address)
            .await
            .map_err(|error| fail(error.to_string(), false))?;
        let mut addresses = Vec::new();
        for wanted in wanted {
            match self
                .front_ends
                .of(listener.protocol)
                .listen(self.listen_at(address.host(), wanted, listener))
                .await
            {
                Ok(bound) => addresses.push(bound),
                Err(error) => {
                    self.close_all(listener.protocol, &addresses).await;
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

    fn listen_at(
        &self,
        host: &ListenerHost,
        address: SocketAddr,
        listener: &Portal,
    ) -> ListenAt<Protocol> {
        let mut options = self.socket_options(&listener.socket_options);
        // `*` is both families; what is written as an IPv6 address is IPv6 alone.
        options.only_v6 = address.is_ipv6().then_some(*host != ListenerHost::Any);
        ListenAt {
            address,
            options,
            port: listener.protocol,
            inherited: None,
        }
    }

    async fn close_all(&self, protocol: Protocol, addresses: &[SocketAddr]) {
        let front = self.front_ends.of(protocol);
        for address in addresses {
            if let Err(error) = front.stop_listening(*address).await {
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
        let at = ListenAt {
            address: listener.address(),
            options: self.socket_options(&SocketOptions::default()),
            port: INHERITED,
            inherited: Some(listener),
        };
        let address = self.front_ends.of(INHERITED).listen(at).await?;
        tracing::info!(name, %address, "inherited a listener");
        self.books().inherited.push((name, address));
        Ok(())
    }
}

/// The options that are given, as sockets have them.
pub(super) fn socket_options(options: &SocketOptions) -> weir_reactor::SocketOptions {
    weir_reactor::SocketOptions {
        send_buffer: options.send_buffer,
        receive_buffer: options.receive_buffer,
        congestion_control: options.congestion_control.clone(),
        dscp: options.dscp,
        priority: options.priority.map(u32::from),
        ..Default::default()
    }
}

/// What the system says of a socket, as the control plane knows it.
pub(super) fn socket_report(report: weir_reactor::SocketReport) -> SocketReport {
    SocketReport {
        send_buffer: report.send_buffer,
        receive_buffer: report.receive_buffer,
        congestion_control: report.congestion_control,
        dscp: report.dscp,
        priority: report.priority,
        round_trip_us: report.round_trip.as_micros() as u64,
        retransmits: report.retransmits,
        congestion_window: report.congestion_window,
    }
}

/// Whether this machine has IPv6 at all.
fn has_ipv6() -> bool {
    std::path::Path::new("/proc/net/if_inet6").exists()
}
