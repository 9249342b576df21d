/**
 * Defines the variables of admission expressions (`object`, `request`, `params`, `variables`, `authorizer`, …), and compiles
 * and evaluates these expressions.
 */
import {
  authorizerType,
  authorizerValue,
  type CheckAttributes,
  type CheckDecision,
} from '../../../../api/cel/authorizer.ts';
import {
  type CelEnvironment,
  CelCompileError,
  compile,
  type Program,
  runWaiting,
  type Budget,
} from '../../../../api/cel/cel.ts';
import { CostSlice } from '../../../../api/cel/cost-slice.ts';
import { namespaceType, requestType } from '../../../../api/cel/admission-variables.ts';
import { type CelType, dyn } from '../../../../api/cel/types.ts';
import { CelError, type CelValue, CostExceeded, OpaqueValue } from '../../../../api/cel/values.ts';
import type { TimeSlice } from '../../../../api/machinery/time-slice.ts';
import type { GroupVersionKind, GroupVersionResource, KubeObject } from '../../../../api/meta/object.ts';
import type { UserInfo } from '../../../model/user-info.ts';
import type { Authorizer } from '../../authorization/authorization.ts';
import type { AdmissionAttributes } from '../admission.ts';
import { namespaceOf } from '../pod-attributes.ts';
import { AUTHENTICATED_GROUP } from '../../../../api/meta/system-users.ts';

/** The cost limit of all expressions that share one `Bindings`. */
const EVALUATION_BUDGET = 10_000_000;

/** The request in the version that the policy or webhook registered for. */
export interface RequestView {
  readonly kind: GroupVersionKind;
  readonly resource: GroupVersionResource;
  readonly object: KubeObject | undefined;
  readonly oldObject: KubeObject | undefined;
}

/** The declared types of the variables. `variables` is declared per policy, since it has the policy's own members. */
export const ADMISSION_VARIABLES: Readonly<Record<string, CelType>> = {
  object: dyn,
  oldObject: dyn,
  request: requestType,
  params: dyn,
  namespaceObject: namespaceType,
  authorizer: authorizerType,
};

/** An expression that is compiled on first use. If it does not compile, its evaluation fails. */
export class Expression {
  readonly source: string;
  readonly #environment: CelEnvironment;
  #program: Program | CelError | undefined;

  constructor(source: string, environment: CelEnvironment) {
    this.source = source.trim();
    this.#environment = environment;
  }

  /** Returns the compiled expression. Throws `CelError`. */
  program(): Program {
    if (this.#program === undefined) {
      try {
        this.#program = compile(this.source, this.#environment);
      } catch (error) {
        if (!(error instanceof CelCompileError)) throw error;
        this.#program = new CelError(error.reason);
      }
    }
    if (this.#program instanceof CelError) throw this.#program;
    return this.#program;
  }

  /** Throws `ExpressionError` with kube-apiserver's message. */
  async evaluate(bindings: Bindings): Promise<CelValue> {
    try {
      return await runInTurns(this.program(), bindings);
    } catch (error) {
      throw this.#failure(error);
    }
  }

  #failure(error: unknown): unknown {
    if (error instanceof CelError || (error instanceof CostExceeded && !error.ofBudget)) {
      return new ExpressionError(`expression '${this.source}' resulted in error: ${error.message}`);
    }
    if (error instanceof CostExceeded) {
      return new ExpressionError(
        'validation failed due to running out of cost budget, no further validation rules will be run',
      );
    }
    return error;
  }
}

/** An expression that does not compile, fails, or exceeds its cost. The failure policy decides what follows. */
export class ExpressionError extends Error {}

/** What an evaluation costs beside its expression: its variables are prepared and its result is read. */
const EVALUATION_COST = 500;

/** All requests share the slice, because they share the event loop. */
const slice = new CostSlice();

/**
 * Evaluates an expression. Yields to the event loop before it if earlier expressions have cost much, or if the request has
 * taken long.
 */
export async function runInTurns(program: Program, bindings: Bindings): Promise<CelValue> {
  if (slice.isSpent) await slice.pause();
  if (bindings.slice?.isSpent === true) await bindings.slice.pause();
  const before = bindings.budget.left;
  try {
    return await runWaiting(program, (name) => bindings.read(name), bindings.budget);
  } finally {
    slice.spend(EVALUATION_COST + before - bindings.budget.left);
  }
}

/** The variables of one evaluation. Each is computed on first use. */
export class Bindings {
  readonly budget: Budget = { left: EVALUATION_BUDGET };
  /** The slice of the request, which all its expressions share. */
  readonly slice: TimeSlice | undefined;
  readonly #values: ReadonlyMap<string, () => unknown>;
  readonly #computed = new Map<string, unknown>();

  constructor(values: Readonly<Record<string, () => unknown>>, slice?: TimeSlice) {
    this.#values = new Map(Object.entries(values));
    this.slice = slice;
  }

  /** Returns the value of a variable, or null for an unknown name. */
  read(name: string): unknown {
    if (!this.#computed.has(name)) this.#computed.set(name, this.#values.get(name)?.() ?? null);
    return this.#computed.get(name);
  }
}

/** The value of `variables`. Each member is evaluated on first use, and at most once. */
export class LazyVariables extends OpaqueValue {
  readonly typeName = 'kubernetes.variables';
  readonly #evaluate: (name: string) => CelValue | undefined;
  readonly #computed = new Map<string, CelValue | undefined>();

  constructor(evaluate: (name: string) => CelValue | undefined) {
    super();
    this.#evaluate = evaluate;
  }

  equals(other: OpaqueValue): boolean {
    return other === this;
  }

  override member(name: string): CelValue | undefined {
    if (!this.#computed.has(name)) this.#computed.set(name, this.#evaluate(name));
    return this.#computed.get(name);
  }
}

/** Returns the value of the variable `request`: the AdmissionRequest without its objects. */
export function requestValue(attributes: AdmissionAttributes, view: RequestView): object {
  const { user, kind, resource, subresource } = attributes;
  const namespace = namespaceOf(attributes);
  return {
    kind: { ...view.kind },
    resource: { ...view.resource },
    ...(subresource === '' ? {} : { subResource: subresource, requestSubResource: subresource }),
    requestKind: { ...kind },
    requestResource: { ...resource },
    ...(attributes.name === '' ? {} : { name: attributes.name }),
    ...(namespace === '' ? {} : { namespace }),
    operation: attributes.operation,
    userInfo: {
      username: user.name,
      ...(user.uid === undefined ? {} : { uid: user.uid }),
      groups: user.groups,
      extra: user.extra ?? {},
    },
    dryRun: attributes.dryRun,
    options: attributes.options,
  };
}

/** Returns the value of the variable `authorizer`, which asks the server's authorizers about the user of the request. */
export function authorizerFor(authorizer: Authorizer, attributes: AdmissionAttributes): CelValue {
  const { resource, subresource, name } = attributes;
  return authorizerValue((check) => decide(authorizer, attributes.user, check), {
    group: resource.group,
    version: resource.version,
    resource: resource.resource,
    subresource,
    namespace: namespaceOf(attributes),
    name,
  });
}

function decide(
  authorizer: Authorizer,
  requester: UserInfo,
  check: CheckAttributes,
): CheckDecision | Promise<CheckDecision> {
  const { serviceAccount, path, verb, group, version, resource, subresource, namespace, name } = check;
  const user =
    serviceAccount === undefined
      ? requester
      : {
          name: `system:serviceaccount:${serviceAccount.namespace}:${serviceAccount.name}`,
          groups: ['system:serviceaccounts', `system:serviceaccounts:${serviceAccount.namespace}`, AUTHENTICATED_GROUP],
        };
  const isResourceRequest = path === undefined;
  const decision = authorizer.authorize({
    user,
    verb,
    isResourceRequest,
    group,
    version,
    resource,
    subresource,
    namespace,
    name,
    path: path ?? '',
  });
  const shown = ({ decision: answer, reason, evaluationError }: Awaited<typeof decision>): CheckDecision => ({
    allowed: answer === 'allow',
    reason,
    ...(evaluationError === undefined ? {} : { error: evaluationError }),
  });
  return decision instanceof Promise ? decision.then(shown) : shown(decision);
}

/** A match condition or a variable of a policy. */
export interface NamedCondition {
  readonly name: string;
  readonly expression: string;
}

/**
 * Whether all match conditions are true. A condition that is false decides, even if others fail. Otherwise the failures are
 * thrown.
 */
export async function conditionsMatch(conditions: readonly Expression[], bindings: Bindings): Promise<boolean> {
  const failures: string[] = [];
  for (const condition of conditions) {
    try {
      if ((await condition.evaluate(bindings)) !== true) return false;
    } catch (error) {
      if (!(error instanceof ExpressionError)) throw error;
      failures.push(error.message);
    }
  }
  const [first] = failures;
  if (first === undefined) return true;
  throw new ExpressionError(failures.length === 1 ? first : `[${failures.join(', ')}]`);
}
