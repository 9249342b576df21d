/**
 * Creates clients of this process, which call the API without the network. They pass authorization and admission as other
 * clients do. Until the control plane serves, they can only read.
 */
import type { Client } from '../../api/client/client.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import type { LoopTurns } from '../../api/machinery/loop-turns.ts';
import type { Authorizer } from '../security/authorization/authorization.ts';
import type { ResourceCatalog } from '../model/rest.ts';
import { SYSTEM_FIELD_MANAGER, SYSTEM_USER } from '../model/system-user.ts';
import { createDirectClient } from '../server/direct-client.ts';
import { AUTHENTICATED_GROUP } from '../../api/meta/system-users.ts';

interface ClientOptions {
  /** The groups beside `system:authenticated`. */
  readonly groups?: readonly string[];
  /** The name of the user by default. */
  readonly fieldManager?: string;
  /** Lists and watches return the objects of the caches, which must never be changed. */
  readonly shared?: boolean;
}

/** Clients by user. */
export interface Clients {
  /** The API server itself. */
  readonly system: Client;
  as(user: string, options?: ClientOptions): Client;
}

interface ClientsOptions {
  readonly catalog: ResourceCatalog;
  readonly authorizer: Authorizer;
  readonly clock: Clock;
  readonly turns: LoopTurns;
}

/** Creates the clients. */
export function createClients(options: ClientsOptions): Clients {
  const as: Clients['as'] = (name, { groups = [], fieldManager = name, shared = false } = {}) =>
    createDirectClient({
      ...options,
      user: { name, groups: [...groups, AUTHENTICATED_GROUP] },
      fieldManager,
      shared,
    });
  return {
    system: createDirectClient({ ...options, user: SYSTEM_USER, fieldManager: SYSTEM_FIELD_MANAGER }),
    as,
  };
}
