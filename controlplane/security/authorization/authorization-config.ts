/**
 * Parses the `--authorization-config` file: the authorizers in their order, and the settings and match conditions of
 * webhooks.
 */
import { errorMessage } from '../../../api/meta/error-message.ts';
import { isJsonObject } from '../../../api/meta/json-object.ts';
import { parseDuration } from '../../../api/component/duration.ts';
import { parseConfigFile, shapeFault, type ConfigShape, API_SERVER_CONFIG_VERSIONS } from '../../model/config-shape.ts';

/** A compiled CEL condition of a webhook. All conditions must match for the webhook to be called. */
export interface MatchCondition {
  /**
   * Evaluates the condition. The variable `request` has the fields of the `spec` of a SubjectAccessReview of version v1.
   * Throws if the evaluation fails.
   */
  matches(request: Readonly<Record<string, unknown>>): boolean;
}

/** Throws an error with the reason if the expression does not compile. */
export type MatchConditionCompiler = (expression: string) => MatchCondition;

/** The settings of one webhook. Times are in milliseconds; responses with a lifetime of 0 are not cached. */
export interface WebhookSettings {
  readonly configFile: string;
  readonly version: 'v1' | 'v1beta1';
  readonly authorizedTtlMs: number;
  readonly unauthorizedTtlMs: number;
  readonly timeoutMs?: number;
  readonly failurePolicy?: 'NoOpinion' | 'Deny';
  readonly matchConditions?: readonly MatchCondition[];
}

/** One authorizer of the file. `webhook` is set if the type is Webhook. */
export interface AuthorizerEntry {
  readonly type: string;
  readonly name: string;
  readonly webhook?: WebhookSettings;
}

const SHAPE: ConfigShape = {
  apiVersion: 'text',
  kind: 'text',
  authorizers: [
    {
      type: 'text',
      name: 'text',
      webhook: {
        authorizedTTL: 'text',
        cacheAuthorizedRequests: 'boolean',
        unauthorizedTTL: 'text',
        cacheUnauthorizedRequests: 'boolean',
        timeout: 'text',
        subjectAccessReviewVersion: 'text',
        matchConditionSubjectAccessReviewVersion: 'text',
        failurePolicy: 'text',
        connectionInfo: { type: 'text', kubeConfigFile: 'text' },
        matchConditions: [{ expression: 'text' }],
      },
    },
  ],
};
const UNIQUE = new Set(['Node', 'RBAC', 'ABAC', 'AlwaysAllow', 'AlwaysDeny']);
const MAX_TIMEOUT_MS = 30_000;
const MAX_CONDITIONS = 64;

/** Reads an AuthorizationConfiguration. `path` is for messages. Throws an error with the path and the faulty field. */
export function loadAuthorizationConfig(
  text: string,
  path: string,
  compile?: MatchConditionCompiler,
): AuthorizerEntry[] {
  const value = parseConfigFile(text, path);
  const refuse = (why: string): never => {
    throw new Error(`${path}: ${why}`);
  };
  if (
    !isJsonObject(value) ||
    value['kind'] !== 'AuthorizationConfiguration' ||
    !API_SERVER_CONFIG_VERSIONS.has(String(value['apiVersion']))
  ) {
    return refuse('not an AuthorizationConfiguration of apiserver.config.k8s.io');
  }
  const fault = shapeFault(value, SHAPE);
  if (fault !== undefined) return refuse(fault);
  const { authorizers } = value;
  if (!Array.isArray(authorizers) || authorizers.length === 0)
    return refuse('at least one authorization mode must be defined');
  const types = new Set<string>();
  const names = new Set<string>();
  return authorizers.map((item: unknown, i): AuthorizerEntry => {
    if (!isJsonObject(item)) return refuse(`authorizers[${i}] must be an object`);
    const { type, name, webhook } = item;
    if (typeof type !== 'string' || type === '') return refuse(`authorizers[${i}].type is required`);
    if (typeof name !== 'string' || name === '') return refuse(`authorizers[${i}].name is required`);
    if (names.has(name)) return refuse(`authorizers[${i}].name: "${name}" occurs twice`);
    if (UNIQUE.has(type) && types.has(type)) return refuse(`authorizers[${i}].type: "${type}" occurs twice`);
    names.add(name);
    types.add(type);
    if (type !== 'Webhook')
      return webhook === undefined ? { type, name } : refuse(`authorizers[${i}].webhook is only for type Webhook`);
    if (!isJsonObject(webhook)) return refuse(`authorizers[${i}].webhook is required`);
    return { type, name, webhook: webhookSettings(webhook, `authorizers[${i}].webhook`, refuse, compile) };
  });
}

function webhookSettings(
  webhook: Record<string, unknown>,
  at: string,
  refuse: (why: string) => never,
  compile: MatchConditionCompiler | undefined,
): WebhookSettings {
  const duration = (field: string, fallback: string, cacheField = ''): number => {
    if (cacheField !== '' && webhook[cacheField] === false) return 0;
    const text = webhook[field] ?? fallback;
    return (typeof text === 'string' ? parseDuration(text) : undefined) ?? refuse(`${at}.${field} must be a duration`);
  };
  const version = webhook['subjectAccessReviewVersion'];
  if (version !== 'v1' && version !== 'v1beta1')
    return refuse(`${at}.subjectAccessReviewVersion must be v1 or v1beta1`);
  const failurePolicy = webhook['failurePolicy'];
  if (failurePolicy !== 'NoOpinion' && failurePolicy !== 'Deny')
    return refuse(`${at}.failurePolicy must be NoOpinion or Deny`);
  const timeoutMs = duration('timeout', '');
  if (timeoutMs <= 0 || timeoutMs > MAX_TIMEOUT_MS) return refuse(`${at}.timeout must be above 0 and at most 30s`);
  const connection = isJsonObject(webhook['connectionInfo']) ? webhook['connectionInfo'] : {};
  const configFile = connection['kubeConfigFile'];
  if (connection['type'] !== 'KubeConfigFile' || typeof configFile !== 'string') {
    return refuse(`${at}.connectionInfo must be of type KubeConfigFile with a kubeConfigFile`);
  }
  const conditions: unknown[] = Array.isArray(webhook['matchConditions']) ? webhook['matchConditions'] : [];
  if (conditions.length > 0 && webhook['matchConditionSubjectAccessReviewVersion'] !== 'v1') {
    return refuse(`${at}.matchConditionSubjectAccessReviewVersion must be v1`);
  }
  if (conditions.length > MAX_CONDITIONS)
    return refuse(`${at}.matchConditions: ${conditions.length} are too many, must have at most ${MAX_CONDITIONS}`);
  const expressions = new Set<string>();
  const matchConditions = conditions.map((condition, i) => {
    const expression = isJsonObject(condition) ? condition['expression'] : undefined;
    if (typeof expression !== 'string' || expression.trim() === '')
      return refuse(`${at}.matchConditions[${i}].expression is required`);
    if (expressions.has(expression))
      return refuse(`${at}.matchConditions[${i}].expression: "${expression}" occurs twice`);
    expressions.add(expression);
    if (compile === undefined) return refuse(`${at}.matchConditions[${i}]: expressions are not available`);
    try {
      return compile(expression);
    } catch (error) {
      return refuse(`${at}.matchConditions[${i}].expression: ${errorMessage(error)}`);
    }
  });
  return {
    configFile,
    version,
    failurePolicy,
    timeoutMs,
    authorizedTtlMs: duration('authorizedTTL', '5m', 'cacheAuthorizedRequests'),
    unauthorizedTtlMs: duration('unauthorizedTTL', '30s', 'cacheUnauthorizedRequests'),
    matchConditions,
  };
}
