/**
 * `node:http` without what an import of it brings along: an import reads every export once, and one of them is a getter that
 * loads a whole fetch client (16 MB resident and a tenth of the start). Whoever makes or serves plain HTTP takes it from here;
 * types come from `node:http` itself. `test/architecture.test.ts` holds this.
 */

export const { Agent, createServer, request, ServerResponse } = process.getBuiltinModule('node:http');
export type Agent = InstanceType<typeof Agent>;
