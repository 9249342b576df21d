/**
 * Runs a control plane in memory, without controllers and scheduler, and sends requests of any form to it as an administrator.
 */
import assert from 'node:assert/strict';
import { rmSync, writeFileSync } from 'node:fs';
import { Agent } from 'node:https';
import { join } from 'node:path';
import type { JsonObject } from '../../api/meta/object.ts';
import { type ControlPlane, startControlPlane } from '../../controlplane/main.ts';
import { send, type Answer, type Connection } from '../hostile/send.ts';
import { until } from '../until.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const TOKEN = 'tested-plane-token';
const DEFINITIONS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions';

export interface Call {
  readonly method?: 'GET' | 'HEAD' | 'POST' | 'PUT' | 'PATCH' | 'DELETE' | 'OPTIONS';
  readonly path: string;
  /** A text is sent as it is, and anything else as JSON. */
  readonly body?: unknown;
  readonly type?: string;
  readonly accept?: string;
}

/** A control plane and its address. */
export class TestedPlane {
  readonly plane: ControlPlane;
  readonly connection: Connection;
  readonly #directory: string;

  private constructor(plane: ControlPlane, directory: string) {
    this.plane = plane;
    this.#directory = directory;
    this.connection = {
      origin: plane.url,
      agent: new Agent({ keepAlive: true, rejectUnauthorized: false }),
      token: TOKEN,
    };
  }

  static async start(): Promise<TestedPlane> {
    const directory = temporaryFolder();
    const tokenAuthFile = join(directory, 'tokens.csv');
    writeFileSync(tokenAuthFile, `${TOKEN},tester,1,"system:masters"\n`);
    const plane = await startControlPlane({
      memory: true,
      flags: { tokenAuthFile, scheduler: false, controllers: [] },
    });
    return new TestedPlane(plane, directory);
  }

  call({ method = 'GET', path, body, type = 'application/json', accept }: Call): Promise<Answer> {
    return send(this.connection, {
      method,
      path,
      type,
      ...(accept === undefined ? {} : { accept }),
      ...(body === undefined ? {} : { body: () => (typeof body === 'string' ? body : JSON.stringify(body)) }),
    });
  }

  /** Creates a CustomResourceDefinition and resolves when its resource is served at the path. */
  async define(definition: JsonObject, path: string): Promise<void> {
    const { status, text } = await this.call({ method: 'POST', path: DEFINITIONS, body: definition });
    assert.equal(status, 201, text);
    await until('the resource of the definition', async () => (await this.call({ path })).status === 200);
  }

  async close(): Promise<void> {
    this.connection.agent.destroy();
    await this.plane.close();
    rmSync(this.#directory, { recursive: true, force: true });
  }
}
