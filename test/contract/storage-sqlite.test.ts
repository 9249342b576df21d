/** Tests the contract of storage backends with the embedded storage in SQLite. */
import { rm } from 'node:fs/promises';
import { silentLogger } from '../../api/component/logger.ts';
import { openSqliteStorage } from '../../controlplane/storage/sqlite/sqlite-storage.ts';
import { FakeClock } from '../fakes/fake-clock.ts';
import { storageContract, type StorageUnderTest } from './storage-contract.ts';
import { temporaryFolder } from '../temporary-folder.ts';

storageContract('sqlite', async () => {
  const directory = temporaryFolder();
  const clock = new FakeClock();
  let close = async (): Promise<void> => undefined;
  const open = async (): Promise<StorageUnderTest> => {
    const storage = await openSqliteStorage({ directory, clock, logger: silentLogger });
    close = () => storage.close();
    return {
      storage,
      clock,
      reopen: async () => {
        await storage.close();
        return open();
      },
      dispose: async () => {
        await close();
        await rm(directory, { recursive: true });
      },
    };
  };
  return open();
});
