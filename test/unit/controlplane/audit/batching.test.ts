/** Audit events in batches. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { BatchingBackend } from '../../../../controlplane/audit/batching.ts';
import type { AuditEvent } from '../../../../controlplane/audit/event.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

function start() {
  const clock = new FakeClock();
  const written: string[] = [];
  let isClosed = false;
  const sink = {
    write(events: readonly AuditEvent[]) {
      assert.ok(!isClosed);
      written.push(...events.map(({ auditID }) => String(auditID)));
      return Promise.resolve();
    },
    close() {
      isClosed = true;
      return Promise.resolve();
    },
  };
  const backend = new BatchingBackend(sink, {
    bufferSize: 10,
    maxBatchSize: 1,
    maxWaitMs: 1000,
    qps: 0,
    burst: 0,
    clock,
    logger: silentLogger,
    onDropped: () => assert.fail('no event is dropped'),
  });
  const process = (auditID: string): void => backend.process({ auditID } as AuditEvent);
  return { clock, written, backend, process };
}

describe('an audit event that comes at any moment of the batch before it', () => {
  it('is sent without waiting for another one', async () => {
    for (let ticks = 0; ticks < 12; ticks += 1) {
      const { clock, written, process } = start();
      process('first');
      for (let tick = 0; tick < ticks; tick += 1) await Promise.resolve();
      process('second');
      await clock.advance(5000);
      assert.deepEqual(written, ['first', 'second'], `it came after ${ticks} ticks`);
    }
  });

  it('is sent before the sink is closed', async () => {
    for (let ticks = 0; ticks < 12; ticks += 1) {
      const { written, process, backend } = start();
      process('first');
      for (let tick = 0; tick < ticks; tick += 1) await Promise.resolve();
      process('second');
      await backend.close();
      assert.deepEqual(written, ['first', 'second'], `it came after ${ticks} ticks`);
    }
  });
});
