/** Tests audit events in batches. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { BatchingBackend } from '../../../../../controlplane/server/audit/batching.ts';
import type { AuditEvent } from '../../../../../controlplane/server/audit/event.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

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

describe('events with large objects that a slow sink does not take', () => {
  const OBJECT = { data: Array.from({ length: 1000 }, (_, at) => `${at} ${'x'.repeat(1000)}`) };

  function stalled() {
    const batches: (readonly AuditEvent[])[] = [];
    let dropped = 0;
    let next = (): void => undefined;
    const sink = {
      write: (events: readonly AuditEvent[]) => {
        batches.push(events);
        return new Promise<void>((resolve) => (next = resolve));
      },
      close: () => Promise.resolve(),
    };
    const clock = new FakeClock();
    const backend = new BatchingBackend(sink, {
      ...{ bufferSize: 10_000, maxBatchSize: 400, maxWaitMs: 1000, qps: 0, burst: 0 },
      ...{ clock, logger: silentLogger, onDropped: (count: number) => void (dropped += count) },
    });
    const drain = async (): Promise<readonly AuditEvent[]> => {
      await clock.advance(5000);
      for (let taken = 0; taken < batches.length;) {
        taken = batches.length;
        next();
        await clock.advance(5000);
      }
      return batches.flat();
    };
    return { backend, batches, drain, dropped: () => dropped };
  }

  it('keep their memory bounded: later events lose their objects, and none of others is lost', async () => {
    const { backend, batches, drain, dropped } = stalled();
    for (let at = 0; at < 500; at += 1)
      backend.process({ auditID: String(at), requestObject: OBJECT, responseObject: OBJECT });
    backend.process({ auditID: 'of another client' });
    const events = await drain();
    assert.equal(dropped(), 0);
    assert.deepEqual(
      events.map(({ auditID }) => auditID),
      [...Array.from({ length: 500 }, (_, at) => String(at)), 'of another client'],
    );
    const whole = events.filter((event) => event['requestObject'] !== undefined);
    assert.ok(whole.length > 10 && whole.length < 64, `${whole.length} events have their objects`);
    assert.deepEqual(events[499]?.['annotations'], { 'audit.k8s.io/truncated': 'true' });
    // A batch of all of them would be a text of half a gigabyte.
    for (const batch of batches) assert.ok(batch.filter((event) => event['requestObject'] !== undefined).length <= 16);
  });

  it('are cut where clients without credentials send long paths and headers', async () => {
    const { backend, drain, dropped } = stalled();
    for (let at = 0; at < 1000; at += 1)
      backend.process({
        auditID: String(at),
        requestURI: `/${at}${'x'.repeat(500_000)}`,
        userAgent: 'y'.repeat(500_000),
        sourceIPs: ['z'.repeat(100_000), '10.0.0.1'],
      });
    const events = await drain();
    assert.equal(dropped(), 0);
    assert.equal(events.length, 1000);
    const text = JSON.stringify(events.at(-1));
    assert.ok(text.length < 10_000 && text.includes('"10.0.0.1"'), text.slice(0, 100));
  });

  it('are measured as far as there is memory for them, because a list may have millions of values', () => {
    const { backend, dropped } = stalled();
    const unread = {
      get value(): string {
        return assert.fail('it was measured to its end');
      },
    };
    const items = Array.from({ length: 100_000 }, () => 'x'.repeat(1000));
    backend.process({ auditID: 'a', responseObject: { items: [unread, ...items] } });
    assert.equal(dropped(), 0);
  });
});
