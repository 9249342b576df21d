/** The fake passes the same contract as the real runtimes. */
import { systemClock } from '../../../../api/machinery/clock.ts';
import { runtimeContract } from '../../../contract/runtime-contract.ts';
import { createFakeHost, FakeRuntime } from '../../../fakes/fake-runtime.ts';

runtimeContract('fake', () => {
  const host = createFakeHost(['shell:1']);
  return Promise.resolve({
    runtime: new FakeRuntime(systemClock, host),
    image: 'shell:1',
    directory: '/nowhere',
    simulated: true,
    restart: () => Promise.resolve(new FakeRuntime(systemClock, host)),
    close: () => Promise.resolve(),
  });
});
