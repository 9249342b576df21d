import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MetricsRegistry } from '../../../../../api/component/metrics.ts';
import type { AdmissionAttributes } from '../../../../../controlplane/security/admission/admission.ts';
import { chainMetrics } from '../../../../../controlplane/security/admission/admission-metrics.ts';
import { admissionChain } from '../../../../../controlplane/security/admission/chain.ts';

test('calls of plugins and of the chain are counted by operation, kind of call and whether they were refused', async () => {
  const registry = new MetricsRegistry();
  let refuses = false;
  const plugin = {
    name: 'Picky',
    handles: (operation: string) => operation === 'CREATE',
    validate() {
      if (refuses) throw new Error('refused');
    },
  };
  const chain = admissionChain([plugin], chainMetrics(registry));
  const attributes = { operation: 'CREATE' } as AdmissionAttributes;
  const { signal } = new AbortController();
  const counts = (): string[] => [...registry.text().matchAll(/^apiserver_admission_\w+_count\{.*$/gm)].map(String);
  assert.deepEqual(counts(), [], 'series appear with the first call');

  await chain.validate(attributes, signal);
  await chain.validate(attributes, signal);
  refuses = true;
  await assert.rejects(chain.validate(attributes, signal), /refused/);
  const plugins = 'apiserver_admission_controller_admission_duration_seconds_count{name="Picky",';
  const steps = 'apiserver_admission_step_admission_duration_seconds_count{';
  assert.deepEqual(counts(), [
    `${plugins}operation="CREATE",rejected="false",type="validate"} 2`,
    `${plugins}operation="CREATE",rejected="true",type="validate"} 1`,
    `${steps}operation="CREATE",rejected="false",type="validate"} 2`,
    `${steps}operation="CREATE",rejected="true",type="validate"} 1`,
  ]);
});
