/** Tests the contract of storage backends with a storage on etcd. */
import { after, before, describe } from 'node:test';
import { silentLogger } from '../../api/component/logger.ts';
import { openEtcdStorage } from '../../controlplane/storage/etcd/etcd-storage.ts';
import { etcdMissing, EtcdProcess } from '../etcd-process.ts';
import { FakeClock } from '../fakes/fake-clock.ts';
import { layoutBelow } from './etcd-contract-layout.ts';
import { storageContract, type StorageUnderTest } from './storage-contract.ts';

describe('storage on etcd', { skip: etcdMissing }, () => {
  let etcd: EtcdProcess;
  let opened = 0;
  before(async () => {
    etcd = await EtcdProcess.start();
  });
  after(() => etcd.remove());

  storageContract('etcd', async () => {
    const clock = new FakeClock();
    opened += 1;
    const layout = layoutBelow(`/test${opened}`);
    let close = async (): Promise<void> => undefined;
    const open = async (): Promise<StorageUnderTest> => {
      const storage = await openEtcdStorage({ servers: await etcd.connect(), layout, clock, logger: silentLogger });
      close = () => storage.close();
      return {
        storage,
        clock,
        lifeMs: 1000,
        reopen: async () => {
          await storage.close();
          return open();
        },
        dispose: () => close(),
      };
    };
    return open();
  });
});
