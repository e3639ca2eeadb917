package claimtx

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/stores/postgres/internal/tables"
)

// SendBatch is tables.DB's Batch on a connection of pgx, in one round trip.
func SendBatch(ctx context.Context, conn *pgx.Conn, statements ...tables.Statement) error {
	var batch pgx.Batch
	batch.Queue("begin isolation level read committed")
	queueAll(&batch, statements)
	batch.Queue("commit")
	if err := conn.SendBatch(ctx, &batch).Close(); err != nil {
		Abandon(ctx, conn)
		return err
	}
	return nil
}
