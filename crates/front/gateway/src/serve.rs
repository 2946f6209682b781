//! The gateway from its start to its end: `weir serve`.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};
use weir_reactor::linux::limits::raise_descriptor_limit;

use crate::api::socket::{ControlSocket, SocketError};
use crate::api::{self, About};
use crate::config::{Config, Environment};
use crate::control::{Control, ControlError};
use crate::engine::reactors::memory_needs;
use crate::engine::{Engine, EngineError, EngineFuture, EngineStart, Started};
use crate::inherited::{Inherited, InheritedError};
use crate::limits::{self, LimitsError, Plan};
use crate::log::{self, LogError};
use crate::privileges::{Identity, PrivilegesError};
use crate::store::{FileStore, Store, StoreError};

/// How long requests to the API may take after the data path has ended.
const API_END: Duration = Duration::from_secs(1);

/// Why the gateway did not start, or did not end as it should.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Logging cannot begin.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The configuration does not fit the machine.
    #[error(transparent)]
    Limits(#[from] LimitsError),
    /// It cannot be the user that it shall be.
    #[error(transparent)]
    Privileges(#[from] PrivilegesError),
    /// The service manager handed over something strange.
    #[error(transparent)]
    Inherited(#[from] InheritedError),
    /// The state cannot be had.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The control socket cannot be had.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The data path does not start.
    #[error("the data path does not start: {0}")]
    Engine(Box<dyn std::error::Error + Send + Sync>),
    /// The state cannot be brought into force.
    #[error("{0}")]
    Control(Box<ControlError>),
    /// The data path did not end as it should.
    #[error("the data path did not end as it should: {0}")]
    End(#[from] EngineError),
    /// The system refused.
    #[error("cannot {step}: {source}")]
    System {
        /// What was to be done.
        step: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

fn system(step: &'static str) -> impl Fn(io::Error) -> ServeError {
    move |source| ServeError::System { step, source }
}

/// Serves until SIGTERM or SIGINT. Returns when all has ended in order.
///
/// # Errors
/// The gateway could not start, or did not end as it should.
pub fn serve(
    config: &Config,
    version: &'static str,
    factory: impl for<'a> Fn(EngineStart<'a>) -> EngineFuture<'a>,
) -> Result<(), ServeError> {
    let filter = std::env::var(log::VARIABLE).ok();
    let rate_limit = log::begin(&config.log, filter.as_deref())?;
    let files = raise_descriptor_limit().map_err(system("raise the limit on open files"))?;
    let plan = Plan::here(config, memory_needs(config))?;
    if let Some(warning) = limits::open_files_warning(plan.connections, files.now) {
        tracing::warn!("{warning}");
    }
    if config.pause {
        tracing::warn!(
            "`pause` has no effect any more and the next release will refuse it: remove the line"
        );
    }
    tracing::info!("{}", plan.budget);
    if let Some(warning) = plan.budget.warning() {
        tracing::warn!("{warning}");
    }
    if plan.io_queues < config.limits.io_queues {
        tracing::info!(
            io_queues = plan.io_queues,
            "a host has fewer I/O queues than limits.io_queues: a quarter of all connections"
        );
    }
    let inherited = Inherited::take()?;
    // Where things are by default depends on who starts it, and not on whom it becomes.
    let environment = Environment::of_this_process();
    let (state, socket) = (
        config.state_path(&environment),
        config.control_socket(&environment),
    );
    match &config.user {
        Some(user) => {
            let identity = Identity::find(user, config.group.as_deref())?;
            let mut files = vec![state.clone()];
            if inherited.control.is_none() {
                files.push(socket.clone());
            }
            identity.assume(&files)?;
            tracing::info!(user, "runs as this user");
        }
        None if environment.root => {
            tracing::info!("runs as root, which nothing here needs: `user` names another user");
        }
        None => {}
    }
    let store = FileStore::open(&state)?;
    let socket = match inherited.control {
        Some(listener) => ControlSocket::inherited(listener),
        None => ControlSocket::bind(&socket)?,
    };
    let about = About {
        version,
        state: store.place(),
        started: Instant::now(),
        budget: plan.budget.clone(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(system("start the control thread"))?;
    let result = runtime.block_on(async {
        let start = EngineStart {
            config,
            plan,
            listeners: inherited.listeners,
        };
        let started = factory(start).await.map_err(ServeError::Engine)?;
        tokio::spawn(rate_limit.clone().sum_up_forever());
        let drain = config.shutdown.drain;
        run(started, Box::new(store), &socket, about, drain).await
    });
    rate_limit.sum_up();
    result
}

async fn run(
    Started { engine, ceph }: Started,
    store: Box<dyn Store>,
    socket: &ControlSocket,
    about: About,
    drain: Duration,
) -> Result<(), ServeError> {
    let mut signals = Signals::new().map_err(system("listen for signals"))?;
    let version = about.version;
    let control = Control::start(engine.clone(), store).await;
    let control = control.map_err(|error| ServeError::Control(Box::new(error)))?;
    tokio::spawn(control.clone().retry_forever());
    tokio::spawn(control.clone().keep_reservations_forever());
    tokio::spawn(feed_watchdog(engine));
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let router = api::router_with_ceph(control.clone(), about, Some(ceph));
    let serving = socket.serve(router, async {
        // Dropping the sender ends it just as well.
        let _ = ended.await;
    });
    tokio::pin!(serving);
    tracing::info!(version, revision = control.state().revision, "serving");
    notify(&[NotifyState::Ready]);
    let name = tokio::select! {
        name = signals.next() => name,
        served = &mut serving => {
            let broken = || io::Error::other("it ended by itself");
            let error = served.err().unwrap_or_else(broken);
            return Err(system("serve the control API")(error));
        }
    };
    tracing::info!(signal = name, ?drain, "ending");
    notify(&[NotifyState::Stopping]);
    let shut_down = async {
        tokio::select! {
            result = control.shut_down(drain) => result,
            again = signals.next() => {
                tracing::warn!(signal = again, "ending at once");
                Ok(())
            }
        }
    };
    tokio::pin!(shut_down);
    // The API answers until the data path has ended, and then finishes what it has begun.
    let result = tokio::select! {
        result = &mut shut_down => result,
        _ = &mut serving => shut_down.await,
    };
    drop(end);
    let _ = tokio::time::timeout(API_END, serving).await;
    tracing::info!("ended");
    Ok(result?)
}

/// The signals that end the gateway.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        Ok(Self {
            terminate,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// Tells the service manager, if there is one.
fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "cannot notify the service manager");
    }
}

/// Keeps the service manager's watchdog quiet for as long as every reactor answers.
async fn feed_watchdog(engine: Arc<dyn Engine>) {
    let Some(period) = sd_notify::watchdog_enabled() else {
        return;
    };
    loop {
        if engine.reactors().await.is_ok() {
            notify(&[NotifyState::Watchdog]);
        }
        tokio::time::sleep(period / 3).await;
    }
}
