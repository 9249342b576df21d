/** Tests how the paths that control planes use among themselves respond to clients that are no control planes. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { peerPaths } from '../../../../controlplane/standby/peer-paths.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { fakeExchange } from '../../../fakes/fake-exchange.ts';

test('refused clients cause few lines of the log, however many requests they send and however long these are', async () => {
  const lines: { readonly path: string; readonly suppressed?: number }[] = [];
  const logger = { ...silentLogger, warn: (fields: object) => void lines.push(fields as (typeof lines)[number]) };
  const clock = new FakeClock();
  const handle = peerPaths({ isPeer: () => false, routes: [], logger, clock });
  const refused: number[] = [];
  const flood = (): void => {
    for (let at = 0; at < 1000; at += 1)
      handle({
        ...fakeExchange(),
        target: `/orchlet/control-plane/${at}/${'x'.repeat(100_000)}`,
        send: (code: number) => void refused.push(code),
      });
  };
  flood();
  assert.deepEqual([refused.length, new Set(refused)], [1000, new Set([403])]);
  assert.ok(lines.length > 0 && lines.length <= 10, `${lines.length} lines`);
  assert.ok(lines.every(({ path }) => path.length < 2000));
  await clock.advance(60_000);
  flood();
  assert.ok(lines.length <= 20, `${lines.length} lines`);
  assert.equal(lines[10]?.suppressed, 990);
});
