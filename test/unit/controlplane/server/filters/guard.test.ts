/** A handler learns from its signal that nobody waits for it any more, and nothing is aborted after it has ended. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { alwaysAllow } from '../../../../../controlplane/security/authorization/union.ts';
import { guardFilter } from '../../../../../controlplane/server/filters/guard.ts';
import { ApiRequest } from '../../../../../controlplane/server/request.ts';
import { noObserver } from '../../../../../controlplane/server/request-metrics.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { fakeEncodings } from '../../../../fakes/fake-server.ts';
import { fakeExchange } from '../../../../fakes/fake-exchange.ts';

function guarded(handler: () => Promise<void>) {
  const clock = new FakeClock();
  const filter = guardFilter({
    clock,
    logger: silentLogger,
    encodings: fakeEncodings,
    requestTimeoutMs: 60_000,
    observer: noObserver,
  });
  const close = { listener: (): void => undefined };
  const exchange = { ...fakeExchange(), onClose: (listener: () => void) => void (close.listener = listener) };
  const request = new ApiRequest(exchange, alwaysAllow, clock);
  const { signal } = request;
  return { clock, signal, disconnect: () => close.listener(), handled: filter(request, handler) };
}

test('the signal aborts when the client is disconnected before the handler has ended', async () => {
  const work = Promise.withResolvers<void>();
  const { signal, disconnect, handled } = guarded(() => work.promise);
  disconnect();
  assert.equal(signal.aborted, true);
  work.resolve();
  await handled;
});

test('the signal aborts when the time of the request is over', async () => {
  const work = Promise.withResolvers<void>();
  const { clock, signal, handled } = guarded(() => work.promise);
  await clock.advance(60_000);
  assert.equal(signal.aborted, true);
  work.resolve();
  await handled;
});

test('the signal does not abort when the connection ends after the handler', async () => {
  const { signal, disconnect, handled } = guarded(async () => undefined);
  await handled;
  disconnect();
  assert.equal(signal.aborted, false);
});
