/** Shows how the last suggestion came about, or why there was none, in the server's own words. */
import { OutputChannel, window } from "vscode";
import type { Explanation } from "./protocol";
import { Server } from "./server";

let channel: OutputChannel | undefined;

export async function explain(server: Server): Promise<void> {
  const told = await server.request<Explanation>("speclsp/explain", {});
  if (!told) {
    void window.showInformationMessage("speclsp: the server does not run, or is too old to explain what it did.");
    return;
  }
  channel ??= window.createOutputChannel("speclsp: the last suggestion");
  channel.replace(`${told.text}\n`);
  channel.show(true);
}

export const forget = (): void => {
  channel?.dispose();
  channel = undefined;
};
