/** Tests the APIServices of definitions that are created and deleted. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { silentLogger } from '../../../../../api/component/logger.ts';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import { newStatusError } from '../../../../../api/meta/status-error.ts';
import {
  startAutoRegistration,
  type AutoRegistrationOptions,
} from '../../../../../controlplane/registry/aggregation/auto-registration.ts';
import type { ListerChange } from '../../../../../controlplane/model/listers.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

const NAME = 'v1.example.com';
const definition = {
  metadata: { name: 'things.example.com' },
  spec: { group: 'example.com', versions: [{ name: 'v1', served: true }] },
} as unknown as KubeObject;

class Objects {
  objects: KubeObject[] = [];
  #listener: (change: ListerChange<KubeObject>) => void = () => undefined;

  get(_namespace: string, name: string): KubeObject | undefined {
    return this.objects.find(({ metadata }) => metadata.name === name);
  }

  list(): readonly KubeObject[] {
    return this.objects;
  }

  subscribe(listener: (change: ListerChange<KubeObject>) => void): void {
    this.#listener = listener;
  }

  add(object: KubeObject): void {
    this.objects.push(object);
    this.#listener({ current: object, previous: undefined });
  }

  remove(object: KubeObject): void {
    this.objects = this.objects.filter((one) => one !== object);
    this.#listener({ current: undefined, previous: object });
  }
}

function start(create: (service: KubeObject) => Promise<void> = () => Promise.resolve()) {
  const [definitions, services] = [new Objects(), new Objects()];
  const clock = new FakeClock();
  const abort = new AbortController();
  const client = {
    // The informer reports a write before the client gets its response, and here it notifies no handler.
    async create(_resource: unknown, _namespace: string, service: KubeObject) {
      await create(service);
      services.objects.push(service);
    },
    delete(_resource: unknown, _namespace: string, name: string) {
      services.objects = services.objects.filter(({ metadata }) => metadata.name !== name);
      return Promise.resolve();
    },
  };
  const options = { definitions, services, client, clock, logger: silentLogger, signal: abort.signal };
  startAutoRegistration(options as unknown as AutoRegistrationOptions);
  return { definitions, services, clock, stop: () => abort.abort() };
}

describe('the API services of definitions', () => {
  it('follow a definition that goes at any moment while its coming is handled', async () => {
    for (let ticks = 0; ticks < 20; ticks += 1) {
      const { definitions, services, clock, stop } = start();
      definitions.add(definition);
      for (let tick = 0; tick < ticks; tick += 1) await Promise.resolve();
      definitions.remove(definition);
      await clock.advance(60_000);
      assert.deepEqual(
        services.objects.map(({ metadata }) => metadata.name),
        [],
        `it went after ${ticks} ticks`,
      );
      stop();
    }
  });

  it('are tried again after a failure, ever more rarely', async () => {
    let attempts = 0;
    const { definitions, services, clock, stop } = start(() => {
      attempts += 1;
      return attempts < 8 ? Promise.reject(newStatusError(500, 'InternalError', 'no room')) : Promise.resolve();
    });
    definitions.add(definition);
    await clock.advance(5000);
    assert.ok(attempts > 3 && attempts < 8, `${attempts} attempts in five seconds`);
    await clock.advance(120_000);
    assert.deepEqual(
      services.objects.map(({ metadata }) => metadata.name),
      [NAME],
    );
    stop();
  });
});
