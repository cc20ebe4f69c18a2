; Low-rank adapters: "LoRA: Low-Rank Adaptation of Large Language Models", Hu et al. 2021.  A product W x becomes
; W x + s B A x; W stays as it is.  Programs are not changed for it: what is required behind one adapts the products with
; its weights.
;
;   (require "qwen3.lisp")
;   (require lora)
;   (low-rank 16 2.0 [["qkv-w" 0 1024] ["qkv-w" 1536 512]])
;
; Each place is a weight's name, the first of its rows that is added to, and how many there are: those of one module of a
; Hugging Face folder.  Its A [rank in] and B [rows rank] are weights, qkv-w.0.lora-a and qkv-w.0.lora-b.
(require-dialect tensor)
(require nn)

; A layer's part of a weight that `weight-beside` gave, l is its place there
(defn part-of [w l]
  (let [all (whole w)]
    (if (layered w) (slice all (concat [l] (map (fn [size] 0) (weight-shape w))) (concat [nil] (weight-shape w))) all)))

; y [n columns] with d [n rows] added from a column on
(defn added-at [y first d]
  (let [[n rows] (shape d)]
    (if (= rows (dim y 1))
      (+ y d)
      (insert (+ (slice y [0 first] [n rows]) d) y [0 first] [n rows]))))

; What a place is of, and its A and B, [rank in] and [rows rank] behind other sizes; they begin as PEFT's do: A uniform
; by its columns, B zeros
(defn pair-at [place sizes rank]
  (let [[name first rows] place
        w (known-weight name)
        in (nth (weight-shape w) 1)
        named (fn [suffix] (str "." first suffix))]
    [w
     (weight-beside w (named ".lora-a") (concat sizes [rank in]) f32 ["uniform" (/ 1.0 (sqrt in))])
     (weight-beside w (named ".lora-b") (concat sizes [rows rank]) f32 ["constant" 0.0])]))

; One adapter, that of all rows, at each of these places
(defn low-rank [rank scale places]
  (map (fn [place]
         (let [[w a b] (pair-at place [] rank)]
           (adapt w (fn [y x l]
                      (let [inner (contract [n r] (stored x) [n k] (part-of a l) [r k])]
                        (added-at y (nth place 1) (* scale (contract [n o] inner [n r] (part-of b l) [o r]))))))))
       places))

; ---- several adapters, of which each sequence has its own: "Punica: Multi-Tenant LoRA Serving", Chen et al. 2023

; The state `adapter`, i32 [batch], says which: 0 is none, whose A and B are zeros.  B has the scale in it, and adapters
; of smaller ranks have zeros for the rest.  A is [adapters rank in], B [adapters rows rank].
(defn several-adapters [adapters rank places]
  (state (adapter [batch] i32))
  (map (fn [place]
         (let [[w a b] (pair-at place [adapters] rank)]
           (adapt w (fn [y x l] (added-at y (nth place 1) (of-own-adapters x (part-of a l) (part-of b l)))))))
       places))

; x [n in] of the batch's sequences, a [adapters rank in], b [adapters rows rank] -> [n rows]
(defn of-own-adapters [x a b]
  (let [[n in] (shape x)
        [_ rows rank] (shape b)
        each (/ n (batch))
        own (read-state (known-state "adapter"))
        inner (sum (tensor [i n r rank k in] (* (at x i k) (at a (at own (quot i each)) r k))))]
    (sum (tensor [i n o rows r rank] (* (at inner i r) (at b (at own (quot i each)) o r))))))
