import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ServerHttp2Session } from 'node:http2';
import { IdleSessions } from '../../../../controlplane/server/idle-sessions.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

const TIMEOUT_MS = 60_000;

function sessionOf(): { readonly session: ServerHttp2Session; readonly isClosed: () => boolean } {
  let closed = false;
  return { session: { close: () => (closed = true) } as unknown as ServerHttp2Session, isClosed: () => closed };
}

test('a session that had no stream for the timeout is closed, and not before', async () => {
  const clock = new FakeClock();
  const idle = new IdleSessions({ clock, timeoutMs: TIMEOUT_MS });
  const { session, isClosed } = sessionOf();
  const use = idle.add(session);
  use.opened();
  use.closed();
  await clock.advance(TIMEOUT_MS);
  assert.ok(!isClosed());
  await clock.advance(TIMEOUT_MS / 3);
  assert.ok(isClosed());
});

test('an open stream, or one now and then, keeps a session open', async () => {
  const clock = new FakeClock();
  const idle = new IdleSessions({ clock, timeoutMs: TIMEOUT_MS });
  const [watching, asking] = [sessionOf(), sessionOf()];
  idle.add(watching.session).opened();
  const use = idle.add(asking.session);
  for (let turn = 0; turn < 20; turn += 1) {
    await clock.advance(TIMEOUT_MS / 2);
    use.opened();
    use.closed();
  }
  assert.ok(!watching.isClosed());
  assert.ok(!asking.isClosed());
});
