// A gRPC-Web client: node client.mjs LIBRARY URL DESCRIPTOR CALL [JSON of the prompt]
//
// LIBRARY is connect (@connectrpc/connect-web) or google (grpc-web), google-text for the text form.
// DESCRIPTOR is the file descriptor set of the service in base64, so that no code is generated.
// CALL is Complete, Generate or Cancel (Generate until the third message). Each message is written
// to stdout as a line of JSON as soon as it comes, the end as {"code": ..., "message": ...}.

import { createFileRegistry, create, fromBinary, toBinary, toJson } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";

const [library, url, descriptor, call, prompt = "{}"] = process.argv.slice(2);
const registry = createFileRegistry(
  fromBinary(FileDescriptorSetSchema, Buffer.from(descriptor, "base64")),
);
const service = registry.getService("gateway.demo.v1.Tokens");
const timeoutMs = process.env.TIMEOUT_MS ? Number(process.env.TIMEOUT_MS) : undefined;

function say(value) {
  console.log(JSON.stringify(value));
}

function request(method) {
  return create(method.input, JSON.parse(prompt));
}

async function connect() {
  const { createClient, ConnectError, Code } = await import("@connectrpc/connect");
  const { createGrpcWebTransport } = await import("@connectrpc/connect-web");
  const client = createClient(service, createGrpcWebTransport({ baseUrl: url }));
  const aborting = new AbortController();
  const options = { timeoutMs, signal: aborting.signal };
  try {
    if (call === "Complete") {
      say(toJson(service.method.complete.output, await client.complete(request(service.method.complete), options)));
    } else {
      let seen = 0;
      for await (const token of client.generate(request(service.method.generate), options)) {
        say(toJson(service.method.generate.output, token));
        if (call === "Cancel" && ++seen === 3) aborting.abort();
      }
    }
    say({ code: 0, message: "" });
  } catch (error) {
    const known = ConnectError.from(error);
    say({ code: known.code, message: known.rawMessage, name: Code[known.code] });
  }
}

// A browser's XMLHttpRequest as far as grpc-web uses it, on fetch: text is there as it comes.
class FetchRequest {
  readyState = 0;
  status = 0;
  statusText = "";
  responseText = "";
  response = null;
  responseType = "";
  #headers = {};
  #received = new Headers();
  #aborting = new AbortController();

  open(method, url) {
    this.method = method;
    this.url = url;
    this.#state(1);
  }

  setRequestHeader(name, value) {
    this.#headers[name] = value;
  }

  getResponseHeader(name) {
    return this.#received.get(name);
  }

  getAllResponseHeaders() {
    return [...this.#received].map(([name, value]) => `${name}: ${value}\r\n`).join("");
  }

  abort() {
    this.#aborting.abort();
  }

  async send(body) {
    try {
      const signal = this.#aborting.signal;
      const asked = { method: this.method, headers: this.#headers, body, signal };
      const response = await fetch(this.url, asked);
      this.status = response.status;
      this.#received = response.headers;
      this.#state(2);
      const chunks = [];
      const decoder = new TextDecoder();
      for await (const chunk of response.body ?? []) {
        if (this.responseType === "arraybuffer") {
          chunks.push(chunk);
        } else {
          this.responseText += decoder.decode(chunk, { stream: true });
        }
        this.#state(3);
      }
      const whole = Buffer.concat(chunks);
      this.response = whole.buffer.slice(whole.byteOffset, whole.byteOffset + whole.length);
    } catch {
      this.status = 0;
    }
    this.#state(4);
  }

  #state(state) {
    this.readyState = state;
    this.onreadystatechange?.();
  }
}

async function google(text) {
  globalThis.XMLHttpRequest = FetchRequest;
  const { default: web } = await import("grpc-web");
  const base = new web.GrpcWebClientBase({ format: text ? "text" : "binary" });
  const method = call === "Complete" ? service.method.complete : service.method.generate;
  const descriptor = new web.MethodDescriptor(
    `/${service.typeName}/${method.name}`,
    call === "Complete" ? web.MethodType.UNARY : web.MethodType.SERVER_STREAMING,
    Object,
    Object,
    (message) => toBinary(method.input, message),
    (octets) => fromBinary(method.output, octets),
  );
  const metadata = timeoutMs ? { deadline: String(Date.now() + timeoutMs) } : {};
  const path = url + `/${service.typeName}/${method.name}`;
  if (call === "Complete") {
    await new Promise((resolve) => {
      base.rpcCall(path, request(method), metadata, descriptor, (error, message) => {
        if (error) say({ code: error.code, message: error.message });
        else {
          say(toJson(method.output, message));
          say({ code: 0, message: "" });
        }
        resolve();
      });
    });
    return;
  }
  const stream = base.serverStreaming(path, request(method), metadata, descriptor);
  let seen = 0;
  await new Promise((resolve) => {
    stream.on("data", (message) => {
      say(toJson(method.output, message));
      if (call === "Cancel" && ++seen === 3) {
        stream.cancel();
        say({ code: 1, message: "cancelled" });
        resolve();
      }
    });
    let over = false;
    const end = (code, message) => {
      if (!over) say({ code, message });
      over = true;
      resolve();
    };
    stream.on("error", (error) => end(error.code, error.message));
    stream.on("end", () => end(0, ""));
  });
}

await (library === "connect" ? connect() : google(library === "google-text"));
