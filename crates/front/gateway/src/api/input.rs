//! What requests carry, refused in the API's own way where it is wrong.

use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::{self, DeserializeOwned, Deserializer};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::error::ApiError;

/// The JSON body of a request. A missing body is an empty object.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let bytes = axum::body::Bytes::from_request(request, state)
            .await
            .map_err(|rejection| {
                ApiError::new(rejection.status(), "body", rejection.body_text())
            })?;
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        axum::Json::from_bytes(text)
            .map(|axum::Json(value)| Self(value))
            .map_err(|rejection: JsonRejection| {
                // Semantically wrong JSON is as wrong as any other here.
                ApiError::new(StatusCode::BAD_REQUEST, "invalid", rejection.body_text())
            })
    }
}

/// The names in a request's path.
pub(super) struct Names<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Names<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let result = Path::<T>::from_request_parts(parts, state).await;
        result
            .map(|Path(names)| Self(names))
            .map_err(|rejection: PathRejection| {
                let message = rejection.body_text();
                let message = message.strip_prefix("Invalid URL: ").unwrap_or(&message);
                ApiError::new(StatusCode::BAD_REQUEST, "invalid", message)
            })
    }
}

/// The options after a path.
pub(super) struct Options<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Options<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let result = Query::<T>::from_request_parts(parts, state).await;
        result
            .map(|Query(options)| Self(options))
            .map_err(|rejection: QueryRejection| {
                ApiError::new(StatusCode::BAD_REQUEST, "invalid", rejection.body_text())
            })
    }
}

/// Whether to do what has consequences.
#[derive(Debug, Clone, Copy, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Force {
    /// Whether to remove with it what depends on it.
    #[serde(default)]
    pub(super) force: bool,
}

/// A size in bytes: a number, or a text with a binary unit such as `10G`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = String, example = "10G")]
pub struct SizeInput(pub u64);

impl<'de> Deserialize<'de> for SizeInput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = SizeInput;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("a number of bytes or a size such as \"10G\"")
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<SizeInput, E> {
                Ok(SizeInput(value))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<SizeInput, E> {
                weir_block::size::parse(text)
                    .map(SizeInput)
                    .map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}
