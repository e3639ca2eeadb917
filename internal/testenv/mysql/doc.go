// Package mysql runs private servers of MySQL's family, MariaDB and MySQL, with the
// settings of a database that is meant to keep its data.
//
//	server, err := mysql.Start(ctx, mysql.Config{Product: mysql.MariaDB})
//	if err != nil { … }
//	defer server.Close()
//	url, err := server.NewDatabase(ctx) // mysql://root@127.0.0.1:23456/millpond_test_…
//
// It does not import package testing. Tests use package testenv, which is a thin
// layer over this one.
package mysql
