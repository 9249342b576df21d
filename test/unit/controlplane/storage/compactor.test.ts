/** The compactor on virtual time. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { startCompactor } from '../../../../controlplane/storage/compactor.ts';
import { RevisionLog } from '../../../../controlplane/storage/revision-log.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { FakeLogBackend } from '../../../fakes/fake-log-backend.ts';

const MINUTE = 60_000;

function open() {
  const clock = new FakeClock();
  const removals: number[][] = [];
  const backend = new FakeLogBackend();
  backend.onCall = (operation, revisions) => {
    if (operation === 'remove') removals.push([...revisions]);
  };
  const storage = new RevisionLog({ clock, logger: silentLogger, backend });
  startCompactor({ storage, clock, logger: silentLogger });
  return { clock, storage, removals };
}

it('forgets what is older than five minutes and keeps what is younger', async () => {
  const { clock, storage, removals } = open();
  const first = await storage.create('/core/x/a', Buffer.from('1'));
  const second = await storage.update('/core/x/a', Buffer.from('2'), first.revision);
  await clock.advance(4 * MINUTE);
  const third = await storage.update('/core/x/a', Buffer.from('3'), second.revision);
  await clock.advance(3.9 * MINUTE);
  assert.equal(storage.compactedRevision(), second.revision);
  assert.deepEqual(removals, [[first.revision]]);
  assert.equal((await storage.get('/core/x/a', { revision: second.revision }))?.value.toString(), '2');
  await clock.advance(6 * MINUTE);
  assert.equal(storage.compactedRevision(), third.revision);
});

it('writes nothing while nothing is written', async () => {
  const { clock, storage, removals } = open();
  const { revision } = await storage.create('/core/x/a', Buffer.from('1'));
  await storage.update('/core/x/a', Buffer.from('2'), revision);
  await clock.advance(15 * MINUTE);
  const before = removals.length;
  await clock.advance(120 * MINUTE);
  assert.equal(removals.length, before);
});

it('history that outgrows its limit is forgotten early, and writing goes on', async () => {
  const clock = new FakeClock();
  const storage = new RevisionLog({ clock, logger: silentLogger, backend: undefined, historyLimitBytes: 100_000 });
  let { revision } = await storage.create('/core/x/a', Buffer.alloc(1000));
  for (let i = 0; i < 500; i += 1) ({ revision } = await storage.update('/core/x/a', Buffer.alloc(1000), revision));
  assert.ok(storage.compactedRevision() > 300);
  assert.ok(storage.revision() - storage.compactedRevision() > 50);
});
