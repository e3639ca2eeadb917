// Package pgbouncer runs private PgBouncers in front of a PostgreSQL server, in the mode
// in which most of the trouble is: transaction pooling, where two transactions of one
// client may run on two connections of the server.
//
//	server, err := pgbouncer.Start(ctx, pgbouncer.Config{DatabaseURL: url})
//	if err != nil { … }
//	defer server.Close()
//	conn, err := pgx.Connect(ctx, server.URL())
//
// It does not import package testing. Tests use package testenv, which is a thin
// layer over this one.
package pgbouncer
