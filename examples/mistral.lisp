; Mistral: "Mistral 7B", Jiang et al. 2023: a Llama whose positions may look back over a window only.
; lispgpt run FOLDER --prompt "Once upon a time"
(require nn)  (config kind "mistral")  (def later (or (= kind "cwm") (= kind "ministral3")))
(config vocab 32000  context 32768  layers 32  heads 32  kv-heads heads  width 4096  hidden 14336
        head-size (if later 128 0)  head-width (if (= head-size 0) (quot width heads) head-size)
        tied-head false  layer-types []  longer 0.0  epsilon (if later 1e-5 1e-6)  weight-type bf16
        window (cond (= kind "cwm") 8192  later 0  :else 4096)  cache-type (usual-cache-type weight-type))
(rotary-config 10000.0 (if later "" "default"))       ; of those it has to be said

(hugging-face ["mistral" "ministral" "ministral3" "mistral3" "cwm"]
  {:prefix ["model.language_model." "language_model.model." "language_model." "model."]  :usual true
   :rotary ["default" "dynamic" "linear" "llama3" "yarn"]  :ignored ["vision_tower.*" "multi_modal_projector.*"]
   :requires {"hidden_act" "silu"  "attention_bias" false}}
  (config head-size (optional "head_dim" {:null 0})  kind (optional "model_type")  layer-types (optional "layer_types")
          window (optional "sliding_window" {:null 0})  longer (optional "rope_parameters.llama_4_scaling_beta"))
  (weights
    wte "embed_tokens.weight"  normf-w "norm.weight"  head-w "lm_head.weight"
    (per "layers.*."
      norm1-w "input_layernorm.weight"  norm2-w "post_attention_layernorm.weight"
      qkv-w ["self_attn.q_proj.weight" "self_attn.k_proj.weight" "self_attn.v_proj.weight"]
      proj-w "self_attn.o_proj.weight"
      gate-w "mlp.gate_proj.weight"  up-w "mlp.up_proj.weight"  down-w "mlp.down_proj.weight")))
(gguf ["llama with attention.sliding_window"]
  {:rows {"q_proj" (["num_attention_heads" 2 nil] [0 2 1])  "k_proj" (["num_key_value_heads" 2 nil] [0 2 1])}})

(weights
  (wte [vocab width] weight-type)
  (per layers
    (norm1-w [width] {:init 1})  (norm2-w [width] {:init 1})
    (qkv-w [(* (+ heads (* 2 kv-heads)) head-width) width] weight-type)
    (proj-w [width (* heads head-width)] weight-type)
    (gate-w [hidden width] weight-type)  (up-w [hidden width] weight-type)  (down-w [width hidden] weight-type))
  (normf-w [width] {:init 1})  (when (not tied-head) (head-w [vocab width] weight-type)))

(state (kv [layers batch 2 kv-heads context head-width] cache-type))

; Queries are larger by this where texts are longer than those of the first training, in Ministral 3
(defn scaled [q positions]
  (let [[n heads size] (shape q)
        times (fn [r] (cast (quot (at positions r) (first-length)) f32))]
    (if (= longer 0.0)
      q
      (tensor [r n h heads i size] (* (at q r h i) (+ 1.0 (* longer (log (+ 1.0 (times r))))))))))

(defn windowed? [l]                           ; Ministral 3 makes nothing of layer_types
  (if (= kind "ministral3") true (sliding? layer-types l (or (!= kind "cwm") (!= (mod l 4) 0)))))

(defn layer [x l turn positions]
  (let [qkv (linear (rms-norm x (norm1-w l) epsilon) (qkv-w l))
        [q k v] (split-heads qkv head-width heads kv-heads)
        seen (within-if (windowed? l) window)
        x (+ x (linear (attend (scaled (turn q) positions) (turn k) v (kv l) seen) (proj-w l)))]
    (+ x (swiglu (rms-norm x (norm2-w l) epsilon) (gate-w l) (up-w l) (down-w l)))))

(entry logits [tokens positions]
  (let [turn (turning positions (/ head-width 2))
        x (fold (fn [x l] (layer x l turn positions)) (rows wte tokens) (range layers))]
    (matmul-transposed (rms-norm (last x) normf-w epsilon) (if tied-head wte head-w))))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
