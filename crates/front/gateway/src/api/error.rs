//! How the API refuses.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoResponses, ToSchema};

use crate::control::ControlError;
use crate::engine::EngineError;
use crate::state::StateError;

/// The body of every refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// What is wrong.
    pub error: ErrorDetail,
}

/// What is wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorDetail {
    /// A stable word for programs.
    pub code: String,
    /// What is wrong, in words.
    pub message: String,
    /// What can be done about it, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// The refusals that any call may meet.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "it only describes responses")]
pub(super) enum Refusals {
    /// The request is not well formed, or a value in it is not allowed.
    #[response(status = 400)]
    Invalid(ErrorBody),
    /// There is nothing of this name.
    #[response(status = 404)]
    NotFound(ErrorBody),
    /// It contradicts what is there.
    #[response(status = 409)]
    Conflict(ErrorBody),
    /// What it asks for cannot be had: a volume does not open, an address cannot be listened at.
    #[response(status = 422)]
    Refused(ErrorBody),
    /// The gateway failed.
    #[response(status = 500)]
    Failed(ErrorBody),
    /// The gateway is ending.
    #[response(status = 503)]
    Ending(ErrorBody),
    /// The change is in force, but what hosts have under way and may do no more has not ended in five seconds.
    #[response(status = 504)]
    UnderWay(ErrorBody),
}

/// A refusal on its way.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    detail: ErrorDetail,
}

impl ApiError {
    pub(super) fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        Self {
            status,
            detail: ErrorDetail {
                code: code.into(),
                message: message.into(),
                hint: None,
            },
        }
    }

    pub(super) fn with_hint(mut self, hint: Option<String>) -> Self {
        self.detail.hint = hint;
        self
    }

    pub(super) fn no_such_path() -> Self {
        let message = "there is no such path";
        let hint = "GET /v1/openapi.json describes the API";
        Self::new(StatusCode::NOT_FOUND, "no_such_path", message).with_hint(Some(hint.into()))
    }

    pub(super) fn no_such_method() -> Self {
        let message = "the path has no such method";
        let hint = "GET /v1/openapi.json describes the API";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "no_such_method", message)
            .with_hint(Some(hint.into()))
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.status, Json(ErrorBody { error: self.detail })).into_response()
    }
}

impl From<StateError> for ApiError {
    fn from(error: StateError) -> Self {
        let status = match error {
            StateError::Unknown { .. }
            | StateError::UnknownNamespace { .. }
            | StateError::UnknownLun { .. } => StatusCode::NOT_FOUND,
            StateError::Exists { .. }
            | StateError::InUse { .. }
            | StateError::IdentifierTaken { .. }
            | StateError::LimitReached { .. } => StatusCode::CONFLICT,
            StateError::NsidOutOfRange { .. }
            | StateError::LunOutOfRange { .. }
            | StateError::Invalid { .. } => StatusCode::BAD_REQUEST,
        };
        Self::new(status, error.code(), error.to_string()).with_hint(error.hint())
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        let status = match error {
            EngineError::UnknownConnection { .. } => StatusCode::NOT_FOUND,
            EngineError::WouldShrink { .. } | EngineError::VolumeNotOpen { .. } => {
                StatusCode::CONFLICT
            }
            EngineError::OpenVolume { .. }
            | EngineError::ResizeVolume { .. }
            | EngineError::OpenDirectory { .. }
            | EngineError::Listen { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            EngineError::CloseVolume { .. }
            | EngineError::Failed { .. }
            | EngineError::ReactorLost { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.code(), error.to_string()).with_hint(error.hint())
    }
}

impl From<ControlError> for ApiError {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::State(error) => error.into(),
            ControlError::Engine(error) => error.into(),
            ControlError::Store(_) | ControlError::ResizeNotStored { .. } => {
                let hint = "see that the state's file system has room and is writable, then ask \
                            again";
                Self::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "store_failed",
                    error.to_string(),
                )
                .with_hint(Some(hint.into()))
            }
            ControlError::VolumeBusy(ref busy) => {
                let name = &busy.name;
                let hint = format!(
                    "try again when that has ended; what its medium does: weir volume show {name}"
                );
                Self::new(StatusCode::CONFLICT, "volume_busy", error.to_string())
                    .with_hint(Some(hint))
            }
            ControlError::ResizeUnanswered { ref name } => {
                let hint = format!(
                    "see whether its medium answers, and its size: weir volume show {name}"
                );
                let status = StatusCode::UNPROCESSABLE_ENTITY;
                Self::new(status, "resize_unanswered", error.to_string()).with_hint(Some(hint))
            }
            ControlError::ClearUnanswered { ref name } => {
                let hint = format!(
                    "see whether the state's file system answers, and: weir volume show {name}"
                );
                let status = StatusCode::GATEWAY_TIMEOUT;
                Self::new(status, "clear_unanswered", error.to_string()).with_hint(Some(hint))
            }
            ControlError::UnderWay { .. } => {
                let hint = "their volume does not answer; until they have ended: weir status";
                let status = StatusCode::GATEWAY_TIMEOUT;
                Self::new(status, "under_way", error.to_string()).with_hint(Some(hint.into()))
            }
            ControlError::ShuttingDown => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "shutting_down",
                error.to_string(),
            ),
        }
    }
}
