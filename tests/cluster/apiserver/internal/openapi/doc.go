// Package openapi holds definitions generated at build time from the published k8s.io/api types.
package openapi
