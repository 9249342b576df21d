/** Tests the contract of storage backends with the storage in memory. */
import { openMemoryStorage } from '../../controlplane/storage/memory.ts';
import { FakeClock } from '../fakes/fake-clock.ts';
import { storageContract } from './storage-contract.ts';

storageContract('memory', async () => {
  const clock = new FakeClock();
  const storage = openMemoryStorage({ clock });
  return { storage, clock, dispose: () => storage.close() };
});
