/** Writes to the status of validating policies which of their expressions have type errors. */
import { type ResourceOf, validatingAdmissionPolicies } from '../../../api/client/resources.ts';
import { inSlices, TimeSlice } from '../../../api/machinery/time-slice.ts';
import type { Policy } from '../../security/admission/policy/policy-types.ts';
import { ReconcileLoop, type RunController } from '../controller.ts';
import { type ExpressionWarning, type KindTypes, warningsOf } from './type-checking.ts';

/** The manager of the fields, as in Kubernetes. */
const FIELD_MANAGER = 'validatingadmissionpolicy-status';

interface CheckedPolicy extends Policy {
  readonly status?: {
    readonly observedGeneration?: number;
    readonly typeChecking?: { readonly expressionWarnings?: readonly ExpressionWarning[] };
  };
}

const KIND = { apiVersion: 'admissionregistration.k8s.io/v1', kind: 'ValidatingAdmissionPolicy' };
const RESOURCE = validatingAdmissionPolicies as ResourceOf<CheckedPolicy>;

/** Returns a controller that yields the event loop while it checks: a policy may have thousands of expressions. */
export function policyStatuses(kinds: KindTypes): RunController {
  return (environment, signal) => {
    const { client, informers, clock } = environment;
    const policies = informers.for(RESOURCE);
    const loop = new ReconcileLoop(environment, {
      reconcile: async (name) => {
        const policy = policies.get('', name);
        if (policy === undefined) return;
        const { generation = 0 } = policy.metadata;
        if (generation <= (policy.status?.observedGeneration ?? 0)) return;
        const warnings = await inSlices(warningsOf(policy, kinds), new TimeSlice(clock), signal);
        const typeChecking = warnings.length === 0 ? {} : { expressionWarnings: warnings };
        const body = { ...KIND, metadata: { name }, status: { observedGeneration: generation, typeChecking } };
        const options = { subresource: 'status', fieldManager: FIELD_MANAGER, force: true } as const;
        await client.patch(RESOURCE, '', name, { type: 'apply', body, ...options });
      },
    });
    loop.follow(policies);
    return loop.run(signal, policies);
  };
}
