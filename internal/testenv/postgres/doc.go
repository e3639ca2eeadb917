// Package postgres runs private PostgreSQL servers from the distribution's binaries,
// with the settings of a database that is meant to keep its data.
//
//	server, err := postgres.Start(ctx, postgres.Config{})
//	if err != nil { … }
//	defer server.Close()
//	url, err := server.NewDatabase(ctx)
//
// It does not import package testing. Tests use package testenv, which is a thin
// layer over this one.
package postgres
