/** Defines the flags of authorization. */
import { flag } from '../../api/component/flags.ts';
import { AUTHORIZATION_MODES } from '../security/authorization/authorization-modes.ts';

const AUTHORIZATION = 'Authorization';

/** The rows by the property under which the program reads them. */
export const authorizationFlags = {
  authorizationMode: flag({
    name: 'authorization-mode',
    type: 'list',
    default: ['Node', 'RBAC'],
    choices: AUTHORIZATION_MODES,
    group: AUTHORIZATION,
    help: 'Authorizers in the order in which they are called.',
  }),
  authorizationConfig: flag({
    name: 'authorization-config',
    type: 'string',
    default: '',
    group: AUTHORIZATION,
    help: 'File with an ordered list of authorizers, in place of the flags.',
  }),
  authorizationPolicyFile: flag({
    name: 'authorization-policy-file',
    type: 'string',
    default: '',
    group: AUTHORIZATION,
    help: 'File of ABAC policies, one JSON object per line.',
  }),
  authorizationWebhookConfigFile: flag({
    name: 'authorization-webhook-config-file',
    type: 'string',
    default: '',
    group: AUTHORIZATION,
    help: 'Kubeconfig-format file of an authorizing webhook.',
  }),
  authorizationWebhookVersion: flag({
    name: 'authorization-webhook-version',
    type: 'string',
    default: 'v1beta1',
    choices: ['v1', 'v1beta1'],
    group: AUTHORIZATION,
    help: 'Version of SubjectAccessReview that is sent.',
  }),
  authorizationWebhookCacheAuthorizedTtl: flag({
    name: 'authorization-webhook-cache-authorized-ttl',
    type: 'duration',
    default: 300_000,
    group: AUTHORIZATION,
    help: 'How long the response "allowed" is cached.',
  }),
  authorizationWebhookCacheUnauthorizedTtl: flag({
    name: 'authorization-webhook-cache-unauthorized-ttl',
    type: 'duration',
    default: 30_000,
    group: AUTHORIZATION,
    help: 'How long the response "not allowed" is cached.',
  }),
} as const;
